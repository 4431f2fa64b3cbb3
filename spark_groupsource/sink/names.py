"""The names of a query's transactional ids and groups. Pure.

    <prefix>-<query id>-<topic>   the group of the driver's token: `<base>`. `<topic>` is a short hash of the option `topic`
    <base>-<task>                 the transactional id of a task, and the group of its token
    <base>-<task>-open            the group of the task's mark: the task may have a transaction open
    <base>-reach-<end>            the group of a mark that is there if the number of some marked task is `<end> / 2` or higher

People choose the prefix, share it and reuse it. Spark draws the query's id with a new checkpoint, and keeps it as long as the
checkpoint exists. So a query with a new checkpoint never finds the tokens of another query, and several queries may share a
prefix. ACLs are granted for the prefix.

A list of groups shows all names that a query has used. The topic is part of the names, so the list also shows a changed topic.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

DEFAULT_PREFIX = "groupkafka"
"""The prefix of a query that does not set `transactionalIdPrefix`."""

FIRST_REACH = 4
"""A driver always reads the marks of this many tasks. A query with no more tasks leaves no mark of its reach."""

REACHES = tuple(FIRST_REACH * 2**power for power in range(1, 19))
"""The reaches that can be marked, as exclusive ends of task numbers: 8, 16, ... Spark never has more tasks than the last one."""

_QUERY = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_NAME = re.compile(rf"(?P<prefix>.+)-(?P<query>{_QUERY})(?:-(?P<topic>[0-9a-f]{{8}}))?(?:-(?P<task>0|[1-9][0-9]{{0,5}}))?")


class Names(NamedTuple):
    """The names of one query."""

    prefix: str
    """The option `transactionalIdPrefix`."""
    query: str
    """The query's id."""
    topic: str = ""
    """A hash of the option `topic`, in eight letters. Empty: rows name their topics."""

    @classmethod
    def of(cls, prefix: str, query: str, topic: str | None) -> Names:
        """Return the names of a query that writes to this topic. `None`: rows name their topics."""
        return cls(prefix, query, "" if topic is None else hashlib.sha256(topic.encode()).hexdigest()[:8])

    @property
    def driver(self) -> str:
        """The group of the driver's token. Every other name begins with it."""
        return "-".join(filter(None, self))

    def task(self, number: int) -> str:
        """Return the transactional id of a task. The group of its token has the same name."""
        return f"{self.driver}-{number}"

    def open(self, number: int) -> str:
        """Return the group of the mark that a task leaves before it begins a transaction."""
        return f"{self.driver}-{number}-open"

    def reach(self, end: int) -> str:
        """Return the group of the mark of a reach. `end` is one of REACHES."""
        return f"{self.driver}-reach-{end}"


def reaches_of(number: int) -> tuple[int, ...]:
    """Return the REACHES that a task with this number must mark: the first one above the number, and all lower ones.

    Because the lower ones are marked as well, a driver that searches for the highest one may stop at the first without a mark.
    """
    if number < FIRST_REACH:
        return ()
    return tuple(end for end in REACHES if end // 2 <= number)


def token_group(group: str) -> tuple[Names, int | None] | None:
    """Return the query and the task whose token is kept in a group. The task is `None` for the driver's group.

    Returns `None` if the name is not that of a group with tokens.
    """
    match = _NAME.fullmatch(group)
    if match is None:
        return None
    return Names(match["prefix"], match["query"], match["topic"] or ""), None if match["task"] is None else int(match["task"])


def open_group(group: str) -> tuple[Names, int] | None:
    """Return the query and the task whose mark is kept in a group; `None` if it is not a group of marks."""
    found = token_group(group.removesuffix("-open")) if group.endswith("-open") else None
    return None if found is None or found[1] is None else (found[0], found[1])


def reach_group(group: str) -> tuple[Names, int] | None:
    """Return the query and the end of the reach that a group marks; `None` if it is not a group of reaches."""
    base, _, end = group.rpartition("-reach-")
    found = token_group(base) if end in map(str, REACHES) else None
    return None if found is None or found[1] is not None else (found[0], int(end))


def is_query(text: str) -> bool:
    """Return whether a text has the form of a query's id in Spark."""
    return re.fullmatch(_QUERY, text) is not None
