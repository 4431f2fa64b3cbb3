"""The sink's tokens and marks: the metadata of the offsets that it commits. Pure.

A sink task commits a token in the same transaction as its rows. The token is a committed offset of a consumer group without
members, for partition 0 of each topic that the task wrote to. The offset is the number of the next micro-batch, and its metadata
describes the rows:

    {"v":4,"q":…,"rows":…,"sum":…,"run":…}

Once all tasks of a micro-batch have written, the driver also commits a token, in its own group:

    {"v":4,"q":…,"tasks":…,"rows":…,"wrote":[[from,to],…],"run":…}

`wrote` lists the numbers of the tasks that have a token from this micro-batch, as ranges with exclusive ends. It is `null` if the
list is too long.

Before its first transaction in a run, a task commits a mark outside any transaction. It records that the task may have an open
one.

    {"v":4,"q":…,"run":…,"open":{"at":…,"host":…,"pid":…}}

`q` is the query's id, `run` is its run, and `at` is a time in seconds since 1970. `open` becomes `null` once the driver has made
sure that the task has no open transaction.

Any client can commit to any group, so metadata in any other form is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple, TypeVar

from spark_groupsource.errors import TokenUnreadable
from spark_groupsource.sink.names import is_query
from spark_groupsource.version import another_version

T = TypeVar("T")

# Not 1: see docs/design.md.
VERSION = 4
"""The only format version that a release has written so far. All later versions will read it."""
_MOST_BYTES = 4000
_MOST_BYTES_OF_RANGES = 3000
_MOST = 2**63 - 1
_MOST_TASKS = 1_000_000
_LAST_SECOND = 253_402_300_799
"""The end of the year 9999. Later times cannot be displayed."""
_RUN = r"[0-9a-f-]{0,36}"
_HOST = r"[A-Za-z0-9._:%-]{0,255}"
_CHECKSUM = r"[0-9a-f]{16}"

Kind = Literal["token", "mark"]

_KINDS: tuple[tuple[set[str], Kind], ...] = (({"rows", "sum"}, "token"), ({"tasks", "rows"}, "token"), ({"open"}, "mark"))
"""The fields that identify a task's token, the driver's token and a mark. All three also have `v` and `run`."""


class Written(NamedTuple):
    """The rows that a task wrote in a micro-batch."""

    rows: int
    checksum: int
    """A 64-bit checksum that does not depend on row order (pure_producer.py)."""


class Token(NamedTuple):
    """A sink task's token: the last micro-batch that the task wrote."""

    query: str
    """The query's id."""
    batch: int
    written: Written
    run: str
    """The query's run (Spark's `runId`)."""

    @property
    def offset(self) -> int:
        """The offset to commit."""
        return self.batch + 1

    def metadata(self) -> str:
        """Return the metadata to commit."""
        written = {"rows": self.written.rows, "sum": f"{self.written.checksum:016x}"}
        return _text({"v": VERSION, "q": self.query, **written, "run": self.run})


class BatchToken(NamedTuple):
    """The driver's token: the latest micro-batch that all tasks have written."""

    query: str
    """The query's id."""
    batch: int
    tasks: int
    """The number of tasks in the micro-batch."""
    rows: int
    run: str
    wrote: frozenset[int] | None = None
    """The tasks that have a token from this micro-batch. `None`: unknown."""

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
    """The process that may have an open transaction."""

    at: int
    """When the process left the mark, in seconds since 1970 by its host's clock. Only for display. No decision depends on it."""
    host: str
    pid: int


class Mark(NamedTuple):
    """A task's record that it may have an open transaction."""

    query: str
    run: str
    open: Opener | None
    """The process that may have the transaction open. `None`: it is no longer open."""

    @property
    def offset(self) -> int:
        """The offset to commit, which has no meaning."""
        return 1

    def metadata(self) -> str:
        """Return the metadata to commit."""
        opener = None if self.open is None else self.open._asdict()
        return _text({"v": VERSION, "q": self.query, "run": self.run, "open": opener})


class Committed(NamedTuple):
    """A group's committed offset and its metadata, as a broker returns them."""

    offset: int
    metadata: str


def newest_token(commits: Iterable[Committed], group: str, query: str) -> Token | None:
    """Return a task's latest token. A query may write to several topics, and each of them may have a token.

    Raises:
        TokenUnreadable: Another client, or another version of this package, has committed to the group.
    """
    tokens = (_parsed(_token, commit, group, query) for commit in commits)
    return max(tokens, key=lambda token: token.batch, default=None)


def newest_batch_token(commits: Iterable[Committed], group: str, query: str) -> BatchToken | None:
    """Return the driver's latest token.

    Raises:
        TokenUnreadable: Another client, or another version of this package, has committed to the group.
    """
    tokens = (_parsed(_batch_token, commit, group, query) for commit in commits)
    return max(tokens, key=lambda token: token.batch, default=None)


def mark_in(commits: Iterable[Committed], group: str, query: str) -> Mark | None:
    """Return a task's mark. If several topics have one, prefer a mark whose transaction may be open.

    Raises:
        TokenUnreadable: Another client, or another version of this package, has committed to the group.
    """
    marks = [_parsed(_mark, commit, group, query) for commit in commits]
    return next((mark for mark in marks if mark.open is not None), marks[0] if marks else None)


def kind_of(metadata: str | None) -> Kind | None:
    """Classify any group's commit metadata as a token, a mark, or neither. Tokens and marks in other formats are included."""
    fields = _object(metadata)
    if type(fields.get("v")) is not int or not isinstance(fields.get("run"), str):
        return None
    return next((kind for names, kind in _KINDS if names <= fields.keys()), None)


def own_mark(metadata: str | None) -> Mark | None:
    """Read a mark from any group, for display. Returns `None` if anything in it is not as the sink would write it.

    The query id in it may be forged, so no decision may rely on this mark.
    """
    query = _object(metadata).get("q")
    if not isinstance(query, str) or not is_query(query):
        return None
    try:
        return mark_in([Committed(1, metadata or "")], "", query)
    except TokenUnreadable:
        return None


def _parsed(parse: Callable[[Committed, str, str], T], commit: Committed, group: str, query: str) -> T:
    try:
        return parse(commit, group, query)
    except ValueError:
        raise TokenUnreadable(
            f"The offset {commit.offset} of group {group} has metadata that the sink did not write. The sink records in this "
            "group which micro-batch it has written, so no other client may commit to it, or reset its offsets. The query "
            "fails, because it can no longer tell what is in the topic. Find the client that committed there, and stop it. "
            "Choose another transactionalIdPrefix. If the query then fails with BatchUnknown, choose between rewriteBatch and "
            "skipBatch (docs/sink.md)."
        ) from None


def _token(commit: Committed, group: str, query: str) -> Token:
    fields = _fields(commit, group, query, {"rows", "sum"})
    written = Written(_count(fields["rows"]), int(_matching(_CHECKSUM, fields["sum"]), 16))
    return Token(query, commit.offset - 1, written, fields["run"])


def _batch_token(commit: Committed, group: str, query: str) -> BatchToken:
    fields = _fields(commit, group, query, {"tasks", "rows", "wrote"})
    wrote = None if fields["wrote"] is None else _numbers(fields["wrote"])
    return BatchToken(query, commit.offset - 1, _count(fields["tasks"]), _count(fields["rows"]), fields["run"], wrote)


def _mark(commit: Committed, group: str, query: str) -> Mark:
    fields = _fields(commit, group, query, {"open"})
    opener = fields["open"]
    if opener is None:
        return Mark(query, fields["run"], None)
    if not isinstance(opener, dict) or opener.keys() != set(Opener._fields):
        raise ValueError
    at = _count(opener["at"], _LAST_SECOND)
    return Mark(query, fields["run"], Opener(at, _matching(_HOST, opener["host"]), _count(opener["pid"])))


def _fields(commit: Committed, group: str, query: str, names: set[str]) -> dict[str, Any]:
    """Return the metadata's fields, which must be exactly `names`, `v`, `q` and `run`.

    Raises:
        ValueError: The sink did not write the metadata.
        TokenUnreadable: The metadata has another format version.
    """
    if commit.offset < 1 or len(commit.metadata) > _MOST_BYTES:
        raise ValueError
    fields = _object(commit.metadata)
    if type(fields.get("v")) is not int:
        raise ValueError
    if fields["v"] > 0 and fields["v"] != VERSION:
        raise TokenUnreadable(another_version(f"The offset of group {group}", fields["v"], VERSION))
    # The group's name also has the query's id, so a token that was copied to another query's group is refused here.
    if fields.keys() != names | {"v", "q", "run"} or fields["v"] != VERSION or fields["q"] != query:
        raise ValueError
    _matching(_RUN, fields["run"])
    return fields


def _object(metadata: str | None) -> dict[str, Any]:
    """Return the fields of metadata that is a JSON object, or no fields if it is anything else."""
    try:
        fields = json.loads(metadata or "")
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def _count(value: object, most: int = _MOST) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError
    return value


def _matching(pattern: str, value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(pattern, value):
        raise ValueError
    return value


def _numbers(ranges: object) -> frozenset[int]:
    """Parse `wrote`. A few bytes from another client could name billions of tasks, so numbers above Spark's limit are refused."""
    if not isinstance(ranges, list):
        raise ValueError
    numbers: set[int] = set()
    for bounds in ranges:
        if not isinstance(bounds, list) or len(bounds) != 2:
            raise ValueError
        begin, end = map(_count, bounds)
        if end - begin > _MOST_TASKS - len(numbers):
            raise ValueError
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


def _text(fields: dict[str, object]) -> str:
    return json.dumps(fields, separators=(",", ":"))
