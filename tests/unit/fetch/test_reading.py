"""The times of a task that reads a range: which of them begin when."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError

from spark_groupsource.errors import BrokerError, DataLossError
from spark_groupsource.fetch import reading
from spark_groupsource.fetch.arrow_schema import arrow_schema
from spark_groupsource.fetch.bounds import NoAnswer
from spark_groupsource.fetch.contract import FetchConsumer, FetchRange, FetchSettings, PartitionEvent, Taken, Throttling
from spark_groupsource.fetch.lost_ranges import LogBounds
from spark_groupsource.partition import TopicPartition

RANGE = FetchRange("orders", 0, 0, 10)
SCHEMA = arrow_schema(False)


class Consumer:
    """Has its records from a certain time on, and nothing before."""

    def __init__(self, clock: SimpleNamespace, there_at_s: float) -> None:
        self._clock = clock
        self._there_at_s = there_at_s
        self.errors: dict[int, KafkaError] = {}
        self.answered: set[TopicPartition] = set()
        self.throttling = Throttling()

    def intake(self, *_: object) -> Consumer:
        return self

    def take(self, next_offset: int, end: int, wait_s: float) -> Taken:
        self._clock.s += wait_s
        return Taken(next_offset, end) if self._clock.s >= self._there_at_s else Taken(None, next_offset)

    def batch(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([], SCHEMA)

    def position(self, _: TopicPartition) -> int:
        return -1001

    def nothing(self, *_: object) -> None:
        pass

    assign = unassign = forget_fetched = serve = close = nothing


def read(consumer: Consumer, poll_timeout_ms: int) -> list[pa.RecordBatch]:
    settings = FetchSettings({}, SCHEMA, poll_timeout_ms=poll_timeout_ms)
    return list(reading._Reading(cast(FetchConsumer, consumer), RANGE, settings).batches())


def test_a_leader_that_is_back_just_in_time_has_time_for_the_records(
    clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def back_after_a_while(*_: object) -> LogBounds:
        clock.s += 2.9
        return LogBounds(0, 10)

    monkeypatch.setattr(reading, "wait_for_bounds", back_after_a_while)
    monkeypatch.setattr(reading, "ask_bounds", lambda *_: LogBounds(0, 10))
    assert len(read(Consumer(clock, there_at_s=5.5), 3000)) == 1
    with pytest.raises(BrokerError, match="3000 ms"):
        read(Consumer(clock, there_at_s=float("inf")), 3000)


def test_only_two_silences_in_a_row_make_a_refusal_of_an_interrupted_handshake(
    clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = Consumer(clock, there_at_s=40.0)
    answers = iter([False, True, False])

    def ask(*_: object) -> LogBounds:
        if next(answers, True):
            return LogBounds(0, 10)
        consumer.errors[KafkaError._SSL] = KafkaError(KafkaError._SSL, "interrupted")
        raise NoAnswer(KafkaError(KafkaError._TIMED_OUT))

    monkeypatch.setattr(reading, "wait_for_bounds", lambda *_: LogBounds(0, 10))
    monkeypatch.setattr(reading, "ask_bounds", ask)
    assert len(read(consumer, 120_000)) == 1


def test_nothing_is_asked_while_the_brokers_throttle_the_consumer_nor_for_some_time_after_that(
    clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_at_s: list[float] = []

    def ask(*_: object) -> LogBounds:
        asked_at_s.append(clock.s)
        return LogBounds(0, 10)

    monkeypatch.setattr(reading, "wait_for_bounds", lambda *_: LogBounds(0, 10))
    monkeypatch.setattr(reading, "ask_bounds", ask)
    began_s = clock.s
    consumer = Consumer(clock, there_at_s=began_s + 40.0)
    consumer.throttling.note(30.0)
    assert len(read(consumer, 120_000)) == 1
    assert min(asked_at_s) >= began_s + 30.0 + reading.TASK_SILENCE_S - 1.0
    consumer = Consumer(clock, there_at_s=float("inf"))
    consumer.throttling.note(1000.0)
    with pytest.raises(BrokerError, match="throttling this client"):
        read(consumer, 120_000)


CUT_AT_4000 = KafkaError(
    KafkaError._AUTO_OFFSET_RESET, "Partition log truncation detected at offset 6000: broker end offset is 4000"
)


class Cut(Consumer):
    """Gives this first, which ends with an error. Only with another assignment it gives the records of the range."""

    def __init__(self, clock: SimpleNamespace, first: Taken) -> None:
        super().__init__(clock, 0.0)
        self._first: Taken | None = first
        self.assigned: list[int] = []

    def take(self, next_offset: int, end: int, wait_s: float) -> Taken:
        if (first := self._first) is not None:
            self._first = None
            return first
        return super().take(next_offset, end, wait_s) if len(self.assigned) > 1 else Taken(None, next_offset)

    def assign(self, _: TopicPartition, offset: int) -> None:  # type: ignore[override]
        self.assigned.append(offset)


def cut_at_4000(after: int | None, so_far: int) -> Taken:
    return Taken(after, so_far, event=PartitionEvent(CUT_AT_4000, -1))


@pytest.mark.parametrize(
    ("start", "end", "step", "assigned", "lost"),
    [
        (1100, 1200, cut_at_4000(None, 1100), [1100, 1100], ""),
        (1100, 1200, cut_at_4000(1100, 1150), [1100, 1150], ""),
        (3900, 4200, cut_at_4000(None, 3900), [3900, 3900], ""),
        (3900, 4200, cut_at_4000(3900, 3950), [3900, 3950], "[4000, 4200)"),
        (3900, 4200, cut_at_4000(3900, 4100), [3900], "[4100, 4200)"),
    ],
    ids=["below, of an earlier range", "below", "of an earlier range", "cut beyond the records", "cut below the records"],
)
def test_a_cut_that_librdkafka_finds_out_ends_a_range_only_from_there_on(
    start: int,
    end: int,
    step: Taken,
    assigned: list[int],
    lost: str,
    clock: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for ask in ("wait_for_bounds", "ask_bounds"):
        monkeypatch.setattr(reading, ask, lambda *_: LogBounds(0, 9000))
    for fails in (True, False):
        consumer = Cut(clock, step)
        settings = FetchSettings({}, SCHEMA, poll_timeout_ms=120_000, fail_on_data_loss=fails)
        task = reading._Reading(cast(FetchConsumer, consumer), FetchRange("orders", 0, start, end, 5), settings)
        if lost and fails:
            with pytest.raises(DataLossError):
                list(task.batches())
            continue
        list(task.batches())
        assert consumer.assigned == assigned
        assert task.is_cut == bool(lost)
    if lost:
        assert f"offsets {lost}: the log was truncated at 4000 or below" in caplog.text
    else:
        assert "are lost" not in caplog.text
