"""The token: what a task of the sink commits beside its rows, in the same transaction.

It is a committed offset of a consumer group that has no members, on partition 0 of a topic that the task wrote to. The offset is
the number of the micro-batch that comes next; the metadata says what was written:

    {"v":4,"q":…,"rows":…,"sum":…,"run":…}

The driver keeps one of its own, in another group, when Spark has all of a micro-batch:

    {"v":4,"q":…,"tasks":…,"rows":…,"wrote":[[from,to],…],"run":…}

`wrote` are the numbers of the tasks that have a token of this micro-batch, as ranges with exclusive ends; `null` if there is no
room for them.

And a task leaves a mark before its first transaction in a run, outside of any transaction: it may have an open one from now on.

    {"v":4,"q":…,"run":…,"open":{"at":…,"host":…,"pid":…}}

`q` is the query's id, `run` its run, `at` in seconds since 1970. `open` is `null` once somebody has ended what the task had open.

Any client can write a commit. So a text that is not exactly this is refused, and nothing in it is trusted beyond its numbers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from spark_groupsource.errors import TokenUnreadable
from spark_groupsource.version import another_version

# Not 1: see docs/design.md.
VERSION = 4
"""The only format so far that a release has written. Later versions read it permanently."""
_MOST_BYTES = 4000
_MOST_BYTES_OF_RANGES = 3000
_MOST = 2**63 - 1
_MOST_TASKS = 1_000_000
_LAST_SECOND = 253_402_300_799
"""The end of the year 9999: no later time can be shown."""
_RUN = re.compile(r"[0-9a-f-]{0,36}")
_HOST = re.compile(r"[A-Za-z0-9._:%-]{0,255}")


class Written(NamedTuple):
    """What a task wrote of a micro-batch."""

    rows: int
    checksum: int
    """A checksum of the rows, as 64 bits, whatever their order (checksum.py)."""


class Token(NamedTuple):
    """What one task of the sink wrote last."""

    query: str
    """The query's id."""
    batch: int
    written: Written
    run: str
    """The run of the query (Spark's `runId`)."""

    @property
    def offset(self) -> int:
        """The offset to commit."""
        return self.batch + 1

    def metadata(self) -> str:
        """Return the metadata to commit."""
        written = {"rows": self.written.rows, "sum": f"{self.written.checksum:016x}"}
        return _text({"v": VERSION, "q": self.query, **written, "run": self.run})


class BatchToken(NamedTuple):
    """What the driver knows of the newest micro-batch that all tasks have written."""

    query: str
    """The query's id."""
    batch: int
    tasks: int
    """How many tasks wrote it."""
    rows: int
    run: str
    wrote: frozenset[int] | None = None
    """The tasks that have a token of this micro-batch. `None`: that is not known."""

    @property
    def offset(self) -> int:
        """The offset to commit."""
        return self.batch + 1

    def metadata(self) -> str:
        """Return the metadata to commit."""
        wrote = None if self.wrote is None else _ranges(self.wrote)
        if len(_text({"wrote": wrote})) > _MOST_BYTES_OF_RANGES:
            wrote = None
        counts = {"tasks": self.tasks, "rows": self.rows}
        return _text({"v": VERSION, "q": self.query, **counts, "wrote": wrote, "run": self.run})


class Opener(NamedTuple):
    """Who may have a transaction open."""

    at: int
    """Since when, in seconds since 1970 by that host's clock. It is shown to people, and no rule looks at it."""
    host: str
    pid: int


class Mark(NamedTuple):
    """That a task may have a transaction open."""

    query: str
    run: str
    open: Opener | None
    """`None`: it has none any more."""

    @property
    def offset(self) -> int:
        """The offset to commit. It says nothing."""
        return 1

    def metadata(self) -> str:
        """Return the metadata to commit."""
        opener = None if self.open is None else self.open._asdict()
        return _text({"v": VERSION, "q": self.query, "run": self.run, "open": opener})


class Committed(NamedTuple):
    """An offset of a group, with its metadata, as a broker returns it."""

    offset: int
    metadata: str


def newest_token(commits: Iterable[Committed], group: str, query: str) -> Token | None:
    """Return what a task has written last: a query may write to several topics, and each may carry a token.

    Raises:
        TokenUnreadable: Another client, or another version of this package, wrote into the group.
    """
    return max((_token(commit, group, query) for commit in commits), key=lambda token: token.batch, default=None)


def newest_batch_token(commits: Iterable[Committed], group: str, query: str) -> BatchToken | None:
    """Return the driver's newest token.

    Raises:
        TokenUnreadable: Another client, or another version of this package, wrote into the group.
    """
    return max((_batch_token(commit, group, query) for commit in commits), key=lambda token: token.batch, default=None)


def mark_in(commits: Iterable[Committed], group: str, query: str) -> Mark | None:
    """Return the mark of a task. If several topics carry one, that of a transaction that may be open counts.

    Raises:
        TokenUnreadable: Another client, or another version of this package, wrote into the group.
    """
    marks = [_mark(commit, group, query) for commit in commits]
    return next((mark for mark in marks if mark.open is not None), marks[0] if marks else None)


def _token(commit: Committed, group: str, query: str) -> Token:
    fields = _fields(commit, group, query, {"rows", "sum"})
    checksum = fields["sum"]
    if not isinstance(checksum, str) or not re.fullmatch(r"[0-9a-f]{16}", checksum):
        raise _unreadable(commit, group)
    return Token(query, commit.offset - 1, Written(_count(fields["rows"], commit, group), int(checksum, 16)), fields["run"])


def _batch_token(commit: Committed, group: str, query: str) -> BatchToken:
    fields = _fields(commit, group, query, {"tasks", "rows", "wrote"})
    tasks, rows = (_count(fields[name], commit, group) for name in ("tasks", "rows"))
    wrote = None if fields["wrote"] is None else _numbers(fields["wrote"], commit, group)
    return BatchToken(query, commit.offset - 1, tasks, rows, fields["run"], wrote)


def _mark(commit: Committed, group: str, query: str) -> Mark:
    fields = _fields(commit, group, query, {"open"})
    opener = fields["open"]
    if opener is None:
        return Mark(query, fields["run"], None)
    if not isinstance(opener, dict) or opener.keys() != set(Opener._fields):
        raise _unreadable(commit, group)
    if not isinstance(opener["host"], str) or not _HOST.fullmatch(opener["host"]):
        raise _unreadable(commit, group)
    at, pid = (_count(opener[name], commit, group) for name in ("at", "pid"))
    if at > _LAST_SECOND:
        raise _unreadable(commit, group)
    return Mark(query, fields["run"], Opener(at, opener["host"], pid))


def _numbers(ranges: object, commit: Committed, group: str) -> frozenset[int]:
    """Read `wrote`. Who writes the metadata may claim many tasks in few bytes: not more than Spark has."""
    if not isinstance(ranges, list):
        raise _unreadable(commit, group)
    numbers: set[int] = set()
    for bounds in ranges:
        if not isinstance(bounds, list) or len(bounds) != 2:
            raise _unreadable(commit, group)
        begin, end = (_count(bound, commit, group) for bound in bounds)
        if end - begin > _MOST_TASKS - len(numbers):
            raise _unreadable(commit, group)
        numbers.update(range(begin, end))
    return frozenset(numbers)


def _ranges(numbers: Iterable[int]) -> list[list[int]]:
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number:
            ranges[-1][1] += 1
        else:
            ranges.append([number, number + 1])
    return ranges


def _fields(commit: Committed, group: str, query: str, names: set[str]) -> dict[str, Any]:
    if commit.offset < 1 or len(commit.metadata) > _MOST_BYTES:
        raise _unreadable(commit, group)
    try:
        fields = json.loads(commit.metadata)
    except (ValueError, RecursionError):
        raise _unreadable(commit, group) from None
    if not isinstance(fields, dict) or type(fields.get("v")) is not int:
        raise _unreadable(commit, group)
    if fields["v"] > 0 and fields["v"] != VERSION:
        raise TokenUnreadable(another_version(f"The offset of group {group}", fields["v"], VERSION))
    if fields.keys() != names | {"v", "q", "run"} or fields["v"] != VERSION:
        raise _unreadable(commit, group)
    # A group's name has the query's id already. It stands here, too, so that a token that was copied by hand is no token.
    if fields["q"] != query or not isinstance(fields["run"], str) or not _RUN.fullmatch(fields["run"]):
        raise _unreadable(commit, group)
    return fields


def _count(value: object, commit: Committed, group: str) -> int:
    if type(value) is not int or not 0 <= value <= _MOST:
        raise _unreadable(commit, group)
    return value


def _unreadable(commit: Committed, group: str) -> TokenUnreadable:
    return TokenUnreadable(
        f"Group {group} holds the offset {commit.offset} with metadata that the sink did not write. The sink keeps there what it "
        "has written, so no other client may commit to this group: find out which one does. If it was a reset of offsets, "
        "the query cannot know what it has written. Choose another transactionalIdPrefix; the query then says which of its "
        "choices there are (docs/sink.md)."
    )


def _text(fields: dict[str, object]) -> str:
    return json.dumps(fields, separators=(",", ":"))
