"""The native reader's intake over a librdkafka that is played: any sequence of messages, in batches small enough to be cut often.

`make native-check` runs these under a sanitizer (test_native_arrow.py).
"""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_groupsource.fetch.contract import Taken
from spark_groupsource.native.libraries import why_unavailable
from tests.support.played_librdkafka import ALL, BAD_HEADERS, BATCH_BYTES, BATCH_ROWS, Played, Record, intake_of, row_of, rows_of

pytestmark = pytest.mark.skipif(why_unavailable() is not None, reason=f"no native reader: {why_unavailable()}")


def cost(record: Record) -> int:
    headers = sum(16 + len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


@st.composite
def schemas(draw: st.DrawFn) -> pa.Schema:
    """Some columns in any order, key and value as binary or as text."""
    fields = draw(st.lists(st.sampled_from(list(ALL)), min_size=1, unique_by=lambda field: field.name))
    texts = draw(st.sets(st.sampled_from(["key", "value"])))
    return pa.schema([field.with_type(pa.string()) if field.name in texts else field for field in fields])


some_bytes = st.none() | st.binary(max_size=40)
names = st.binary(max_size=6) | st.text(max_size=3).map(str.encode)


@st.composite
def messages(draw: st.DrawFn) -> list[Record]:
    """Offsets rise, with gaps; now and then comes the first one again, an error, or headers that cannot be read."""
    found: list[Record] = []
    offset = 10
    for _ in range(draw(st.integers(0, 40))):
        kind = draw(st.sampled_from(["record"] * 12 + ["again", "error", "bad headers"]))
        offset += draw(st.sampled_from([0, 0, 0, 0, 1, 5]))
        record = Record(
            found[0].offset if kind == "again" and found else offset,
            draw(some_bytes),
            draw(some_bytes),
            draw(st.lists(st.tuples(names, some_bytes), max_size=3)),
            draw(st.integers(-1, 4_000_000_000_000)),
            draw(st.integers(0, 2)),
            KafkaError._PARTITION_EOF if kind == "error" else 0,
            kind == "bad headers",
        )
        found.append(record)
        if kind in ("record", "bad headers"):
            offset += 1
    return found


# Under the sanitizer everything is slow.
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    records=messages(),
    portions=st.lists(st.integers(0, 9), max_size=60),
    schema=schemas() | st.just(ALL),
    end=st.integers(10, 70),
)
def test_any_messages_come_as_the_rows_that_they_are(
    records: list[Record], portions: list[int], schema: pa.Schema, end: int
) -> None:
    include_headers = "headers" in schema.names
    played = Played(records, iter([*portions, *[3] * 100]))
    intake = intake_of(played, schema)
    rows: list[dict[str, Any]] = []
    events: list[tuple[int, int]] = []
    firsts: list[int] = []
    at = 10

    def take_batch(full: bool) -> None:
        batch = intake.batch()
        if batch is None:
            assert not full
            return
        assert batch.schema.equals(schema, check_metadata=True)
        # What is no column counts all the same, as long as it is in memory.
        costs = [
            cost(record) if include_headers else len(record.key or b"") + len(record.value or b"")
            for record in model(records, end, include_headers)[0][len(rows) : len(rows) + batch.num_rows]
        ]
        assert batch.num_rows <= BATCH_ROWS
        assert batch.num_rows == 1 or sum(costs) <= BATCH_BYTES
        rows.extend(rows_of(batch))

    for _ in range(500):
        taken = intake.take(at, end, 0)
        at = taken.next
        if taken.first is not None:
            firsts.append(taken.first)
        if taken.event is not None:
            events.append((taken.event.error.code(), taken.event.offset))
        if taken.full:
            take_batch(full=True)
        if at >= end or (taken.nothing and not played.waiting):
            break
    take_batch(full=False)

    expected, expected_events, seen_end = model(records, end, include_headers)
    assert rows == [row_of(record, schema) for record in expected]
    assert events == expected_events
    assert at == (end if seen_end else (expected[-1].offset + 1 if expected else 10))
    if expected:
        assert firsts[0] <= expected[0].offset
    intake.close()
    assert not played.living


def model(records: list[Record], end: int, include_headers: bool) -> tuple[list[Record], list[tuple[int, int]], bool]:
    """What a reader of [10, end) should find: the rows, the events, and whether the end was reached."""
    rows: list[Record] = []
    events: list[tuple[int, int]] = []
    at = 10
    for record in records:
        if at >= end:
            return rows, events, True
        if record.error:
            events.append((record.error, record.offset))
        elif record.offset < at:
            continue
        elif record.offset >= end:
            return rows, events, True
        elif record.bad_headers and include_headers:
            events.append((BAD_HEADERS, record.offset))
        else:
            rows.append(record)
            at = record.offset + 1
    return rows, events, at >= end


def test_waits_for_a_record_and_then_for_some_ms_for_each_of_the_next_ones() -> None:
    played = Played([Record(offset) for offset in range(10, 15)], iter([0, 1, 2, 0, 1, 1, 0, 0]))
    intake = intake_of(played)

    taken = intake.take(10, 30, 0.5)

    assert taken == Taken(10, 15)
    assert played.waits == [(0, 7), (500, 1), (0, 6), (0, 4), (5, 1), (0, 3), (0, 2), (5, 1)]
    intake.close()


def test_records_that_drip_do_not_keep_a_call_for_ever() -> None:
    played = Played([Record(offset) for offset in range(300)], itertools.cycle([0, 1]))
    intake = intake_of(played)

    assert intake.take(300, 310, 0.5).nothing, "all of them are before the range"

    assert [wait for wait, _ in played.waits if wait] == [500, *[5] * 99]
    intake.close()


def test_asks_for_no_more_than_the_range_holds() -> None:
    played = Played([], iter([9]))
    intake = intake_of(played)

    assert intake.take(10, 12, 0).nothing
    assert played.waits == [(0, 2)]


def test_what_is_forgotten_is_freed_and_what_was_taken_in_stays() -> None:
    big = b"x" * 90
    played = Played([Record(10, big), Record(11, big), Record(12, big)], iter([9] * 9))
    intake = intake_of(played)

    assert intake.take(10, 30, 0) == Taken(10, 11, full=True)
    assert len(played.living) == 3
    intake.forget_fetched()
    assert len(played.living) == 1
    batch = intake.batch()
    assert batch is not None
    assert batch.column("offset").to_pylist() == [10]
    assert not played.living


def test_a_batch_is_freed_when_it_is_made_or_given_up() -> None:
    played = Played([Record(10, b"k"), Record(11, b"k")], iter([9] * 9))
    intake = intake_of(played)
    intake.take(10, 30, 0)

    intake.close()
    intake.close()

    assert not played.living


def test_an_error_keeps_its_text() -> None:
    played = Played([Record(17, error=KafkaError._TRANSPORT)], iter([9] * 9))
    intake = intake_of(played)

    event = intake.take(10, 30, 0).event

    assert event is not None
    assert (event.error.code(), event.error.str(), event.offset) == (KafkaError._TRANSPORT, "an error", 17)


@pytest.mark.parametrize("epoch", [3, None], ids=["known", "unknown"])
def test_a_record_of_a_later_leader_epoch_is_an_event_within_the_range_and_none_beyond(epoch: int | None) -> None:
    records = [Record(10, epoch=-1), Record(11, epoch=3), Record(12, epoch=4), Record(13, epoch=4)]
    intake = intake_of(Played(records, iter([3, 3, 3, 3])), epoch=epoch)
    if epoch is None:
        assert intake.take(10, 13, 0) == Taken(10, 13)
    else:
        taken = intake.take(10, 13, 0)
        assert (taken.first, taken.next) == (10, 12)
        assert taken.event is not None
        assert (taken.event.error.code(), taken.event.offset) == (KafkaError._LOG_TRUNCATION, 12)
    batch = intake.batch()
    assert batch is not None
    assert batch.column("offset").to_pylist() == ([10, 11, 12] if epoch is None else [10, 11])
    intake.close()
    intake = intake_of(Played(records, iter([9, 9])), epoch=epoch)
    assert intake.take(10, 12, 0) == Taken(10, 12), "what comes after the range is not its matter"
    intake.close()
