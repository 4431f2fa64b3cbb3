"""Other sources of the same query, in the same group on the same topic: each would get only a part of the partitions.

Each source of a query has its own runner process. Spark passes it nothing about the query or the other sources. But one thread
of the driver's JVM runs a query, and starts the runners of all its sources. Linux knows which thread started a process. So
each runner keeps a note open of what it reads, and looks for the notes of the others that the same thread has started. That
thread calls one runner at a time, so the second source sees the note of the first.

Without such a /proc, or if something else starts the runners, nothing is detected.
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
    """Compare what this process reads with the notes of the query's other sources, and leave its own note.

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
                "would give each of them a part of the partitions. A join would miss rows, and a union would have each row once. "
                "To read a topic once, load it once and use that DataFrame twice. To read it twice, give each load its own "
                "kafka.group.id."
            )
    _leave_note(source)


def _leave_note(source: Source) -> None:
    """Write a file without a name. It is never closed, so it exists as long as this process."""
    try:
        note, path = tempfile.mkstemp(prefix=NOTE)
        os.write(note, json.dumps([source.cluster, source.group, sorted(source.topics)]).encode())
        os.unlink(path)
    except OSError as error:
        log.warning("group %s: another source of this query with the same topics would not be detected: %s", source.group, error)


def _others() -> Iterator[Source]:
    for process in _started_by_the_same_query():
        try:
            notes = [link for link in Path(f"/proc/{process}/fd").iterdir() if f"/{NOTE}" in os.readlink(link)]
            for note in notes:
                cluster, group, topics = json.loads(note.read_bytes())
                yield Source(cluster, group, frozenset(topics))
        except OSError:  # the process has just ended
            continue


def _started_by_the_same_query() -> list[str]:
    """Return the processes that the thread of this query has started and that still run, without this one."""
    me = str(os.getpid())
    for thread in Path(f"/proc/{os.getppid()}/task").glob("*"):
        try:
            started = (thread / "children").read_text().split()
            if me in started:
                name = (thread / "comm").read_text().strip()
                return [process for process in started if process != me] if name == QUERY_THREAD else []
        except OSError:  # the thread has just ended, or this kernel does not show its children
            continue
    return []
