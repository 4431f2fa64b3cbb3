"""The text of records in unusual worlds: with little room for it, or written by the next version of this package."""

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
    """Return the limit for a text with room for this many owed ranges and no more, no matter which numbers it has."""
    return 222 + 86 * room


@contextmanager
def limited(room: int) -> Iterator[None]:
    """Limit records to this many ranges inside the `with` block. 0: as many as in Kafka."""
    if not room:
        yield
        return
    with (
        patch("spark_groupsource.handoff.commit_record._ALWAYS_FIT", 0),
        patch("spark_groupsource.handoff.rules.MAX_METADATA_BYTES", metadata_bytes(room)),
    ):
        yield


def register_of(record: CommitRecord, *, newer: bool) -> Register:
    """Return the text that a driver of this version commits, or one of the next version, whose records have one more field."""
    assert commit_record.VERSION == 4
    text = record.metadata()
    return record.offset, NEXT_VERSION + text.removeprefix(THIS_VERSION) if newer else text, record.epoch
