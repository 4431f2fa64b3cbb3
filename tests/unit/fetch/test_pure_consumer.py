"""The pure reader's intake: which messages are in a batch, and when it ends."""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, Message

from spark_groupsource.fetch.arrow_schema import arrow_schema
from spark_groupsource.fetch.contract import FetchRange, Taken
from spark_groupsource.fetch.pure_consumer import _PureIntake


class Fetched:
    """Gives messages as a consumer does, and notes how long it was to wait for how many."""

    def __init__(self, *messages: Message) -> None:
        self.messages = list(messages)
        self.waits: list[tuple[int, float]] = []

    def consume(self, most: int, wait_s: float) -> list[Message]:
        self.waits.append((most, wait_s))
        now, self.messages = self.messages[:most], self.messages[most:]
        return now


def message(offset: int, value: bytes = b"", error: int | None = None) -> Message:
    more: dict[str, Any] = {} if error is None else {"error": KafkaError(error)}
    return Message(topic="t", partition=0, offset=offset, value=value, timestamp=(1, 0), **more)


def intake_of(fetched: Fetched, batch_bytes: int = 100) -> _PureIntake:
    return _PureIntake(cast(Consumer, fetched), FetchRange("t", 0, 0, 1), arrow_schema(include_headers=False), batch_bytes)


def offsets_of(intake: _PureIntake) -> list[int] | None:
    batch = intake.batch()
    return None if batch is None else batch.column("offset").to_pylist()


def test_records_before_the_range_are_dropped_and_one_beyond_it_ends_it() -> None:
    intake = intake_of(Fetched(message(8), message(10), message(12), message(20), message(21)))
    assert intake.take(10, 20, 0) == Taken(10, 20)
    assert offsets_of(intake) == [10, 12]
    assert offsets_of(intake) is None


def test_a_full_batch_is_given_away_before_the_next_record_is_taken_in() -> None:
    intake = intake_of(Fetched(message(0, b"x" * 60), message(1, b"x" * 60)))
    assert intake.take(0, 9, 0) == Taken(0, 1, full=True)
    assert offsets_of(intake) == [0]
    assert intake.take(1, 9, 0) == Taken(1, 2)
    assert offsets_of(intake) == [1]


def test_an_error_comes_after_the_records_before_it() -> None:
    intake = intake_of(Fetched(message(0), message(1, error=KafkaError._PARTITION_EOF)))
    taken = intake.take(0, 9, 0)
    assert (taken.first, taken.next) == (0, 1)
    assert taken.event is not None
    assert (taken.event.error.code(), taken.event.offset) == (KafkaError._PARTITION_EOF, 1)


@pytest.mark.parametrize(("wait_s", "waits"), [(0, [(9, 0)]), (0.5, [(9, 0), (1, 0.5)])])
def test_it_waits_for_one_record_only_since_a_consumer_waits_for_as_many_as_it_is_asked_for(
    wait_s: float, waits: list[tuple[int, float]]
) -> None:
    fetched = Fetched()
    assert intake_of(fetched).take(0, 9, wait_s).nothing
    assert fetched.waits == waits


def test_what_was_fetched_for_an_earlier_assignment_is_forgotten() -> None:
    intake = intake_of(Fetched(message(0, b"x" * 60), message(1, b"x" * 60)))
    intake.take(0, 9, 0)
    intake.forget_fetched()
    assert offsets_of(intake) == [0], "what was taken in stays"
    assert intake.take(1, 9, 0).nothing
