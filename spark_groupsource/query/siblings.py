"""Other sources of the same query: two that are members of one group would share out the partitions of a topic that both read.

Each source of a query has a runner process of its own, and Spark tells it nothing of the query or of the other sources. But one
thread of the driver's JVM runs a query, and starts the runners of all its sources; Linux remembers the thread that started a
process. So each runner keeps a note of what it reads open, and looks for the notes of the others that its thread has started.
That thread calls one runner at a time: whoever comes second sees the first one's note.

Where there is no such /proc, or something else starts the runners, nothing is noticed.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from spark_groupsource.errors import GroupSharedInQuery

log = logging.getLogger(__name__)

QUERY_THREAD = "stream executio"
"""How Spark names the thread of a query ("stream execution thread for ..."), as far as Linux keeps it."""

NOTE = "spark_groupsource.source.1-"


class Source(NamedTuple):
    """What one source of a query reads."""

    cluster: str
    group: str
    topics: frozenset[str]


def refuse_shared_topics(source: Source) -> None:
    """Leave a note of what this process reads, and compare it with those of the query's other sources.

    Raises:
        GroupSharedInQuery: another source of this query reads one of the topics as a member of the same group.
    """
    if not sys.platform.startswith("linux"):
        return
    for other in _others():
        shared = sorted(source.topics & other.topics)
        if shared and (source.cluster, source.group) == (other.cluster, other.group):
            raise GroupSharedInQuery(
                f"Two sources of this query are members of the group {source.group!r} and read {', '.join(shared)}: the group "
                "would give each of them a part of the partitions, so that a join misses rows and a union has each row once. "
                "To read a topic once, load it once and use that DataFrame twice; to read it twice, give each load a "
                "kafka.group.id of its own."
            )
    _leave_note(source)


def _leave_note(source: Source) -> None:
    """In a file without a name, which is gone with this process: it is never closed."""
    try:
        note, path = tempfile.mkstemp(prefix=NOTE)
        os.write(note, json.dumps([source.cluster, source.group, sorted(source.topics)]).encode())
        os.unlink(path)
    except OSError as error:
        log.warning("sources of this query that share group %s would not be noticed: %s", source.group, error)


def _others() -> Iterator[Source]:
    for process in _started_by_the_same_query():
        try:
            notes = [link for link in Path(f"/proc/{process}/fd").iterdir() if f"/{NOTE}" in os.readlink(link)]
            for note in notes:
                cluster, group, topics = json.loads(note.read_bytes())
                yield Source(cluster, group, frozenset(topics))
        except OSError:  # it has just ended
            continue


def _started_by_the_same_query() -> list[str]:
    """The processes that the thread of this query has started and that still run, without this one."""
    me = str(os.getpid())
    for thread in Path(f"/proc/{os.getppid()}/task").glob("*"):
        try:
            started = (thread / "children").read_text().split()
            if me in started:
                name = (thread / "comm").read_text().strip()
                return [process for process in started if process != me] if name == QUERY_THREAD else []
        except OSError:  # the thread has just ended, or this kernel does not tell
            continue
    return []
