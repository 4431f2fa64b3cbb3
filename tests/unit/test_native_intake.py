"""The native reader's C over a librdkafka that is played: any sequence of messages, in batches small enough to be cut often.

Every message has memory of its own that is freed as soon as librdkafka would: `make native-check` runs these under
AddressSanitizer, which sees each byte read or written beyond it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_groupsource.fetch import native_api as librdkafka
from spark_groupsource.fetch import native_consumer as native
from spark_groupsource.fetch.arrow_schema import arrow_schema
from spark_groupsource.fetch.intake import Taken
from spark_groupsource.fetch.native_api import FunctionsStruct, IntakeStruct, Native, NativeUnavailable, why_unavailable
from spark_groupsource.partition import TopicPartition

BATCH_BYTES = 100

pytestmark = pytest.mark.skipif(why_unavailable() is not None, reason=f"no native reader: {why_unavailable()}")

NOT_FOUND = -156
BAD_HEADERS = KafkaError._BAD_MSG
Headers = list[tuple[bytes, "bytes | None"]]


@dataclass(frozen=True)
class Record:
    """A message, or an event if it has an error."""

    offset: int
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = field(default_factory=list)
    time_ms: int = 0
    time_type: int = 1
    error: int = 0
    bad_headers: bool = False


class MessageStruct(ctypes.Structure):
    _fields_ = [
        ("err", ctypes.c_int32),
        ("topic", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("value", ctypes.c_void_p),
        ("value_size", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_size", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    ]


class Played:
    """Gives `records` by `consume_batch_queue`, at most as many at a time as `portions` says, and counts what is not freed."""

    def __init__(self, records: list[Record], portions: Iterator[int]) -> None:
        self.waiting = list(records)
        self.portions = portions
        self.waits: list[tuple[int, int]] = []
        self.living: dict[int, tuple[Record, list[Any]]] = {}
        self._bytes_of_headers: dict[int, list[tuple[Any, Any, int]]] = {}
        c_void_p, c_int, c_size_t, pointer = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.POINTER
        callbacks: dict[str, tuple[Callable[..., Any], Any, tuple[Any, ...]]] = {
            "consume_batch_queue": (self._consume, ctypes.c_ssize_t, (c_void_p, c_int, pointer(c_void_p), c_size_t)),
            "message_destroy": (self._destroy, None, (c_void_p,)),
            "message_errstr": (self._errstr, c_void_p, (c_void_p,)),
            "message_timestamp": (self._timestamp, ctypes.c_int64, (c_void_p, pointer(ctypes.c_int32))),
            "message_headers": (self._headers, c_int, (c_void_p, pointer(c_void_p))),
            "header_cnt": (self._header_cnt, c_size_t, (c_void_p,)),
            "header_get_all": (
                self._header,
                c_int,
                (c_void_p, c_size_t, pointer(c_void_p), pointer(c_void_p), pointer(c_size_t)),
            ),
        }
        self._kept = {name: ctypes.CFUNCTYPE(kind, *arguments)(call) for name, (call, kind, arguments) in callbacks.items()}
        self.functions = FunctionsStruct(**{name: ctypes.cast(call, c_void_p) for name, call in self._kept.items()})
        self._text = ctypes.create_string_buffer(b"an error")

    def _consume(self, _queue: int, timeout_ms: int, into: Any, most: int) -> int:
        self.waits.append((timeout_ms, most))
        now = self.waiting[: min(most, next(self.portions))]
        del self.waiting[: len(now)]
        for index, record in enumerate(now):
            into[index] = self._message(record)
        return len(now)

    def _message(self, record: Record) -> int:
        # Of just the size, so that one byte more is beyond them; an empty one has an address all the same.
        parts = [
            None if part is None else ctypes.create_string_buffer(part, max(1, len(part))) for part in (record.key, record.value)
        ]
        key, value = (None if part is None else ctypes.addressof(part) for part in parts)
        message = MessageStruct(
            err=record.error,
            value=value,
            value_size=len(record.value or b""),
            key=key,
            key_size=len(record.key or b""),
            offset=record.offset,
        )
        address = ctypes.addressof(message)
        self.living[address] = (record, [message, *parts])
        self._bytes_of_headers[address] = [
            (
                ctypes.create_string_buffer(name, len(name) + 1),
                None if value is None else ctypes.create_string_buffer(value, max(1, len(value))),
                len(value or b""),
            )
            for name, value in record.headers
        ]
        return address

    def _destroy(self, message: int) -> None:
        del self.living[message]
        del self._bytes_of_headers[message]

    def _errstr(self, message: int) -> int:
        assert self.living[message][0].error
        return ctypes.addressof(self._text)

    def _timestamp(self, message: int, kind: Any) -> int:
        record, _ = self.living[message]
        kind[0] = record.time_type
        return record.time_ms

    def _headers(self, message: int, headers: Any) -> int:
        record, _ = self.living[message]
        if record.bad_headers:
            return BAD_HEADERS
        if not record.headers:
            return NOT_FOUND
        headers[0] = message
        return 0

    def _header_cnt(self, headers: int) -> int:
        return len(self._bytes_of_headers[headers])

    def _header(self, headers: int, index: int, name: Any, value: Any, size: Any) -> int:
        name_buffer, value_buffer, value_size = self._bytes_of_headers[headers][index]
        name[0] = ctypes.addressof(name_buffer)
        value[0] = None if value_buffer is None else ctypes.addressof(value_buffer)
        size[0] = value_size
        return 0


@pytest.fixture(scope="module", autouse=True)
def small_batches() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "BATCH_ROWS", 7)
        yield


def intake_of(played: Played, include_headers: bool = True) -> native._NativeIntake:
    real = librdkafka.native()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "native", lambda: Native(real.kafka, real.ours, played.functions))
        return native._NativeIntake(1, TopicPartition("t", 3), include_headers, BATCH_BYTES)


def cost(record: Record) -> int:
    headers = sum(16 + len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


def row_of(record: Record, include_headers: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        "key": record.key,
        "value": record.value,
        "topic": "t",
        "partition": 3,
        "offset": record.offset,
        "timestamp": datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=record.time_ms),
        "timestampType": record.time_type - 1,
    }
    if include_headers:
        headers = [{"key": name.decode("utf-8", "replace"), "value": value} for name, value in record.headers]
        row["headers"] = headers or None
    return row


some_bytes = st.none() | st.binary(max_size=40)
names = st.binary(max_size=6).filter(lambda name: b"\0" not in name) | st.text(max_size=3).map(
    lambda text: text.replace("\0", "").encode()
)


@st.composite
def messages(draw: st.DrawFn) -> list[Record]:
    """Offsets rise, with gaps; now and then comes one again, an error, or headers that cannot be read."""
    found: list[Record] = []
    offset = 10
    for _ in range(draw(st.integers(0, 40))):
        kind = draw(st.sampled_from(["record"] * 12 + ["again", "error", "bad headers"]))
        offset += draw(st.sampled_from([0, 0, 0, 0, 1, 5]))
        record = Record(
            offset if kind != "again" else 10,
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
    records=messages(), portions=st.lists(st.integers(0, 9), max_size=60), include_headers=st.booleans(), end=st.integers(10, 70)
)
def test_any_messages_come_as_the_rows_that_they_are(
    records: list[Record], portions: list[int], include_headers: bool, end: int
) -> None:
    played = Played(records, iter([*portions, *[3] * 100]))
    intake = intake_of(played, include_headers)
    rows: list[dict[str, Any]] = []
    events: list[tuple[int, int]] = []
    firsts: list[int] = []
    at = 10

    def take_batch(full: bool) -> None:
        batch = intake.batch()
        if batch is None:
            assert not full
            return
        batch.validate(full=True)
        assert batch.schema.equals(arrow_schema(include_headers), check_metadata=True)
        offsets = batch.column("offset").to_pylist()
        costs = [
            cost(record) if include_headers else len(record.key or b"") + len(record.value or b"")
            for record in records
            if record.offset in offsets and not record.error
        ]
        assert batch.num_rows <= 7
        assert batch.num_rows == 1 or sum(costs) <= BATCH_BYTES or len(costs) > len(offsets)
        rows.extend(batch.to_pylist())

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
    assert rows == [row_of(record, include_headers) for record in expected]
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


def test_waits_for_one_record_and_then_takes_what_came_with_it() -> None:
    played = Played([Record(offset) for offset in range(10, 15)], iter([9] * 9))
    intake = intake_of(played)

    taken = intake.take(10, 30, 0.5)

    assert taken == Taken(10, 15)
    assert played.waits == [(500, 1), (0, 6), (0, 2)]
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
