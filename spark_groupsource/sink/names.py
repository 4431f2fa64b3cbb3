"""A query's names in Kafka: its transactional ids and groups. Pure.

     <prefix>-<query id>-<topic>   the group of the driver's token: `<base>`. `<topic>` is a short hash of the `topic` option
     <base>-<task>                 a task's transactional id, and the group of its token
     <base>-<task>-open            the group of the task's mark: the task may have an open transaction
     <base>-reach-<end>            the group of a mark that exists if any marked task has the number `<end> / 2` or higher

Users choose, share and reuse the prefix. Spark generates the query's id with a new checkpoint, and keeps it as long as the
checkpoint exists. So a query with a new checkpoint never finds another query's tokens, and several queries may share a prefix.
ACLs are granted for the prefix.

A list of groups shows every name that a query has used. Because names include the topic, it also shows if the topic changed.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

DEFAULT_PREFIX = "groupkafka"
"""The prefix if a query does not set `transactionalIdPrefix`."""

FIRST_REACH = 4
"""A driver always reads the marks of this many tasks. A query with no more tasks than this does not mark its reach."""

REACHES = tuple(FIRST_REACH * 2**power for power in range(1, 19))
"""The reaches that can be marked, as exclusive ends of task numbers: 8, 16, ... Spark never has more tasks than the last
value."""

_QUERY = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_NAME = re.compile(rf"(?P<prefix>.+)-(?P<query>{_QUERY})(?:-(?P<topic>[0-9a-f]{{8}}))?(?:-(?P<task>0|[1-9][0-9]{{0,5}}))?")


class Names(NamedTuple):
    """The names of one query."""

    prefix: str
    """The `transactionalIdPrefix` option."""
    query: str
    """The query's id."""
    topic: str = ""
    """A hash of the `topic` option, as eight hex digits. Empty: rows name their topics."""

    @classmethod
    def of(cls, prefix: str, query: str, topic: str | None) -> Names:
        """Return the names for a query that writes to this topic, or, with `None`, to the topics that its rows name."""
        return cls(prefix, query, "" if topic is None else hashlib.sha256(topic.encode()).hexdigest()[:8])

    @property
    def driver(self) -> str:
        """The group of the driver's token. Every other name begins with it."""
        return "-".join(filter(None, self))

    def task(self, number: int) -> str:
        """Return a task's transactional id. The group of the task's token has the same name."""
        return f"{self.driver}-{number}"

    def open(self, number: int) -> str:
        """Return the group for the mark that a task leaves before it begins a transaction."""
        return f"{self.driver}-{number}-open"

    def reach(self, end: int) -> str:
        """Return the group that marks a reach. `end` is one of REACHES."""
        return f"{self.driver}-reach-{end}"


def reaches_of(number: int) -> tuple[int, ...]:
    """Return the REACHES that a task with this number must mark: the first one above its number, and all lower ones.

    Because the lower ones are marked too, a driver that is looking for the highest one can stop at the first one without a mark.
    """
    if number < FIRST_REACH:
        return ()
    return tuple(end for end in REACHES if end // 2 <= number)


def token_group(group: str) -> tuple[Names, int | None] | None:
    """Return the query and the task whose token is in a group. The task is `None` for the driver's group.

    Returns `None` if the name is not a token group's.
    """
    match = _NAME.fullmatch(group)
    if match is None:
        return None
    return Names(match["prefix"], match["query"], match["topic"] or ""), None if match["task"] is None else int(match["task"])


def open_group(group: str) -> tuple[Names, int] | None:
    """Return the query and the task whose mark is in a group, or `None` if it is not a mark's group."""
    found = token_group(group.removesuffix("-open")) if group.endswith("-open") else None
    return None if found is None or found[1] is None else (found[0], found[1])


def reach_group(group: str) -> tuple[Names, int] | None:
    """Return the query and the end of the reach that a group marks, or `None` if it is not a reach's group."""
    base, _, end = group.rpartition("-reach-")
    found = token_group(base) if end in map(str, REACHES) else None
    return None if found is None or found[1] is not None else (found[0], int(end))


def is_query(text: str) -> bool:
    """Return whether a string has the form of a Spark query id."""
    return re.fullmatch(_QUERY, text) is not None
