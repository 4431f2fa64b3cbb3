"""The names of a query's transactional ids and groups. Pure.

    <prefix>-<query id>-<topic>   the group of the driver's token: `<base>`. `<topic>` is a short hash of the option `topic`
    <base>-<task>                 the transactional id of a task, and the group of its token
    <base>-<task>-open            the group of the mark that the task may have an open transaction
    <base>-reach-<end>            the group of the mark that a task with at least half of this number has such a mark

A prefix is chosen by people, who share and reuse it. The query's id is drawn with its checkpoint and stays as long as that does.
So a new checkpoint never finds the tokens of another one, and queries may share a prefix. ACLs are granted for the prefix.

A list of groups shows all names that a query has had. The topic is a part of them, so a list also shows that it was changed.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

DEFAULT_PREFIX = "groupkafka"
"""What `transactionalIdPrefix` is if it is not set."""

FIRST_REACH = 4
"""A driver looks at the marks of so many tasks without asking. A query with no more tasks needs no mark of their reach."""

REACHES = tuple(FIRST_REACH * 2**power for power in range(1, 19))
"""Exclusive ends of task numbers that have a mark of their own: 8, 16, ... Spark has no more tasks than the last."""

_QUERY = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_NAME = re.compile(rf"(?P<prefix>.+)-(?P<query>{_QUERY})(?:-(?P<topic>[0-9a-f]{{8}}))?(?:-(?P<task>0|[1-9][0-9]{{0,5}}))?")


class Names(NamedTuple):
    """The names of one query."""

    prefix: str
    """The option `transactionalIdPrefix`."""
    query: str
    """The query's id."""
    topic: str = ""
    """Eight letters that stand for the option `topic`. Empty: rows name their topics."""

    @classmethod
    def of(cls, prefix: str, query: str, topic: str | None) -> Names:
        """Return the names of a query that writes to this topic. `None`: rows name theirs."""
        return cls(prefix, query, "" if topic is None else hashlib.sha256(topic.encode()).hexdigest()[:8])

    @property
    def driver(self) -> str:
        """The group of the driver's token. Every other name begins with it."""
        return "-".join(filter(None, self))

    def task(self, number: int) -> str:
        """Return the transactional id of a task, which is the name of the group of its token as well."""
        return f"{self.driver}-{number}"

    def open(self, number: int) -> str:
        """Return the group in which a task leaves its mark before its transaction begins."""
        return f"{self.driver}-{number}-open"

    def reach(self, end: int) -> str:
        """Return the group of a mark that some task has a number below `end`, one of REACHES."""
        return f"{self.driver}-reach-{end}"


def reaches_of(number: int) -> tuple[int, ...]:
    """Return which of REACHES a task with this number must mark: the first one above it, and all below that.

    So whoever looks for the last one may stop at the first that is not marked.
    """
    if number < FIRST_REACH:
        return ()
    return tuple(end for end in REACHES if end // 2 <= number)


def token_group(group: str) -> tuple[Names, int | None] | None:
    """Return whose token such a group holds, and of which task: `None` for the driver's. `None` if none is kept there."""
    match = _NAME.fullmatch(group)
    if match is None:
        return None
    return Names(match["prefix"], match["query"], match["topic"] or ""), None if match["task"] is None else int(match["task"])


def open_group(group: str) -> tuple[Names, int] | None:
    """Return whose mark such a group holds, and of which task. `None` if it is no such group."""
    found = token_group(group.removesuffix("-open")) if group.endswith("-open") else None
    return None if found is None or found[1] is None else (found[0], found[1])


def reach_group(group: str) -> tuple[Names, int] | None:
    """Return whose mark of a reach such a group holds, and the end of the reach. `None` if it is no such group."""
    base, _, end = group.rpartition("-reach-")
    found = token_group(base) if end in map(str, REACHES) else None
    return None if found is None or found[1] is not None else (found[0], int(end))


def is_query(text: str) -> bool:
    """Return whether a text is a query's id, as Spark draws it."""
    return re.fullmatch(_QUERY, text) is not None
