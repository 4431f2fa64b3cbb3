"""A record as text in worlds that are not today's: with little room for it, or written by the next version of this package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from spark_groupsource.handoff import commit_record
from spark_groupsource.handoff.commit_record import CommitRecord
from tests.simulation.group import NEXT_VERSION, THIS_VERSION, Register

LONGEST_NAME = 64
"""With names of this length the room of a record is about the same before and after its adoption."""


def metadata_bytes(room: int) -> int:
    """The limit of a text that has room for so many owed ranges, whatever the numbers in it, and for no more."""
    return 222 + 86 * room


@contextmanager
def limited(room: int) -> Iterator[None]:
    """While the context lasts, a record has room for so many ranges; 0: as many as in Kafka."""
    if not room:
        yield
        return
    with (
        patch("spark_groupsource.handoff.commit_record._ALWAYS_FIT", 0),
        patch("spark_groupsource.handoff.rules.MAX_METADATA_BYTES", metadata_bytes(room)),
    ):
        yield


def register_of(record: CommitRecord, *, newer: bool) -> Register:
    """What the coordinator gets from a driver of today, or of the next version, whose records have a field more."""
    assert commit_record.VERSION == 4
    text = record.metadata()
    return record.offset, NEXT_VERSION + text.removeprefix(THIS_VERSION) if newer else text, record.epoch
