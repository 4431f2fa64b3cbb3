"""The native reader's C over a librdkafka that is played: any sequence of messages, in batches small enough to be cut often.

Every message has memory of its own that is freed as soon as librdkafka would: `make native-check` runs these under
AddressSanitizer, which sees each byte read or written beyond it.
"""

from __future__ import annotations

import ctypes
import itertools
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_groupsource.fetch import native_api as librdkafka
from spark_groupsource.fetch import native_arrow
from spark_groupsource.fetch import native_consumer as native
from spark_groupsource.fetch.arrow_schema import arrow_schema, as_type
from spark_groupsource.fetch.intake import Taken
from spark_groupsource.fetch.native_api import ArrayStruct, IntakeStruct, Native, NativeUnavailable, why_unavailable
from spark_groupsource.partition import TopicPartition
from tests.support.played_librdkafka import BAD_HEADERS, Played, Record

BATCH_BYTES = 100
BATCH_ROWS = 7

pytestmark = pytest.mark.skipif(why_unavailable() is not None, reason=f"no native reader: {why_unavailable()}")


ALL = arrow_schema(include_headers=True)


def intake_of(played: Played, schema: pa.Schema = ALL, *, key_sizes: bool = True) -> native.NativeIntake:
    real = librdkafka.native()
    both = Native(real.kafka, real.ours, played.functions, real.producer_functions, key_sizes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "native", lambda: both)
        return native.NativeIntake(1, TopicPartition("t", 3), schema, BATCH_BYTES, BATCH_ROWS)


def memory_bytes() -> int:
    """The memory of this process, from Linux's /proc."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def allocated(block: int) -> int:
    """How many bytes malloc has given for this block."""
    malloc_usable_size = ctypes.CDLL(None).malloc_usable_size
    malloc_usable_size.restype, malloc_usable_size.argtypes = ctypes.c_size_t, [ctypes.c_void_p]
    size: int = malloc_usable_size(block)
    return size


def cost(record: Record) -> int:
    headers = sum(16 + len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


def row_of(record: Record, schema: pa.Schema) -> dict[str, Any]:
    time_ms = record.time_ms if record.time_type else -1
    headers = [{"key": name.decode("utf-8", "replace"), "value": value} for name, value in record.headers]
    row: dict[str, Any] = {
        "key": record.key,
        "value": record.value,
        "topic": "t",
        "partition": 3,
        "offset": record.offset,
        "timestamp": datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=time_ms),
        "timestampType": record.time_type - 1,
        "headers": headers or None,
    }
    return {name: row[name] for name in schema.names}


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows, with texts as bytes: they need not be UTF-8."""
    columns = [as_type(column, pa.binary()) if column.type == pa.string() else column for column in batch.columns]
    compared = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
    compared.validate(full=True)
    rows: list[dict[str, Any]] = compared.to_pylist()
    return [{**row, "topic": row["topic"].decode()} if "topic" in row else row for row in rows]


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
        assert batch.num_rows <= 7
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


@pytest.mark.parametrize("wanted", ALL.names)
def test_librdkafka_is_asked_for_nothing_that_is_not_in_the_schema_and_nothing_else_is_copied(wanted: str) -> None:
    """Of a column that is not in the schema there is no buffer."""
    large = 100_000
    played = Played([Record(10, b"k" * large, b"v" * large, [(b"a", b"h" * large)])], iter([9] * 9))
    intake = intake_of(played, pa.schema([ALL.field(wanted)]))
    intake.take(10, 30, 0)
    made = ArrayStruct()

    assert librdkafka.native().ours.batch(intake._state, made)

    size = allocated(made.private_data)
    assert pa.RecordBatch._import_from_c(ctypes.addressof(made), pa.schema([ALL.field(wanted)])).num_rows == 1
    least = large if wanted in ("key", "value", "headers") else 0
    assert least <= size < least + 10_000
    assert played.asked == {"timestamp": {"timestamp"}, "timestampType": {"timestamp"}, "headers": {"headers"}}.get(wanted, set())


def test_a_batch_and_its_parts_stay_when_the_intake_is_closed() -> None:
    records = [Record(10, b"k", b"v", [(b"a", b"1")]), Record(11, None, b"w" * 50, [(b"\xff", None)])]
    intake = intake_of(Played(records, iter([9] * 9)))
    intake.take(10, 30, 0)
    batch = intake.batch()
    intake.close()

    assert batch is not None
    headers = batch.column("headers").slice(1)
    assert rows_of(batch) == [row_of(record, batch.schema) for record in records]
    del batch
    assert headers.to_pylist() == [[{"key": "\N{REPLACEMENT CHARACTER}", "value": None}]]


def test_the_memory_of_a_batch_is_freed_with_its_last_part() -> None:
    megabyte, most = b"x" * 1_000_000, 600
    intake = intake_of(Played([Record(offset, None, megabyte) for offset in range(most)], itertools.repeat(1)))
    before, at = memory_bytes(), 0
    while at < most:
        at = intake.take(at, most, 0).next
        batch = intake.batch()
        value = None if batch is None else batch.column("value")
        del batch
        assert value is None or value.to_pylist() == [megabyte]
    del value
    intake.close()

    # The sanitizer keeps 256 MB of what was freed.
    assert memory_bytes() - before < most * len(megabyte) * 2 // 3


def test_a_key_that_is_not_utf_8_is_replaced_under_the_names_of_the_user() -> None:
    strict = pa.struct([pa.field("Key", pa.string(), False), pa.field("VALUE", pa.binary(), False)])
    schema = pa.schema([ALL.field("value"), pa.field("Headers", pa.list_(pa.field("element", strict, False)), False)])
    intake = intake_of(Played([Record(10, None, b"v", [(b"a\xff", b"1"), (b"b", b"2")])], iter([9] * 9)), schema)
    intake.take(10, 30, 0)
    batch = intake.batch()

    assert batch is not None
    assert batch.schema.equals(schema, check_metadata=True)
    batch.validate(full=True)
    assert batch.column(1).to_pylist() == [[{"Key": "a\N{REPLACEMENT CHARACTER}", "VALUE": b"1"}, {"Key": "b", "VALUE": b"2"}]]


def test_with_a_librdkafka_that_keeps_the_sizes_of_keys_elsewhere_a_key_ends_at_its_first_nul(
    caplog: pytest.LogCaptureFixture,
) -> None:
    native_arrow._warn_of_cut_keys.cache_clear()
    for _ in range(2):
        played = Played([Record(10, None, b"v", [(b"a\0b", b"1"), (b"\0", None), (b"c", b"2")])], iter([9] * 9))
        intake = intake_of(played, key_sizes=False)
        intake.take(10, 30, 0)
        batch = intake.batch()

        assert batch is not None
        assert [header["key"] for header in batch.column("headers").to_pylist()[0]] == ["a", "", "c"]
        intake_of(Played([], iter([9])), pa.schema([ALL.field("value")]), key_sizes=False).close()
    assert caplog.text.count("up to its first NUL") == 1


def test_the_librdkafka_of_this_installation_keeps_the_sizes_of_keys_where_they_are_read() -> None:
    assert librdkafka.native().key_sizes


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


def test_the_structs_are_as_large_as_in_c() -> None:
    assert librdkafka.native().ours.size_of_intake() == ctypes.sizeof(IntakeStruct)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("_BELOW", 0x02000000, "must be the same"),
        ("_OUR_ABI", 0, "another version of this package"),
        ("_API", {"no_such_function": (None, ())}, "no rd_kafka_no_such_function"),
        ("_OUR_FILE", Path("nowhere/nothing.so"), "not compiled"),
    ],
)
def test_what_does_not_fit_is_not_used(name: str, value: object, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(librdkafka, name, value)

    with pytest.raises(NativeUnavailable, match=reason):
        librdkafka.native.__wrapped__()
