"""The native reader's record batches, which its C makes of the messages of a librdkafka that is played.

Every message has memory of its own that is freed as soon as librdkafka would: `make native-check` runs these under
AddressSanitizer, which sees each byte read or written beyond it.
"""

from __future__ import annotations

import ctypes
import itertools
import os
from pathlib import Path

import pyarrow as pa
import pytest

from spark_groupsource.fetch import native_consumer
from spark_groupsource.native.libraries import load_libraries, why_unavailable
from spark_groupsource.native.structs import ArrayStruct
from tests.support.played_librdkafka import ALL, Played, Record, intake_of, row_of, rows_of

pytestmark = pytest.mark.skipif(why_unavailable() is not None, reason=f"no native reader: {why_unavailable()}")


def memory_bytes() -> int:
    """The memory of this process, from Linux's /proc."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def allocated(block: int) -> int:
    """How many bytes malloc has given for this block."""
    malloc_usable_size = ctypes.CDLL(None).malloc_usable_size
    malloc_usable_size.restype, malloc_usable_size.argtypes = ctypes.c_size_t, [ctypes.c_void_p]
    size: int = malloc_usable_size(block)
    return size


@pytest.mark.parametrize("wanted", ALL.names)
def test_librdkafka_is_asked_for_nothing_that_is_not_in_the_schema_and_nothing_else_is_copied(wanted: str) -> None:
    """Of a column that is not in the schema there is no buffer."""
    large = 100_000
    played = Played([Record(10, b"k" * large, b"v" * large, [(b"a", b"h" * large)])], iter([9] * 9))
    intake = intake_of(played, pa.schema([ALL.field(wanted)]))
    intake.take(10, 30, 0)
    made = ArrayStruct()

    assert load_libraries().ours.batch(intake._state, made)

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
    native_consumer._warn_of_cut_keys.cache_clear()
    for _ in range(2):
        played = Played([Record(10, None, b"v", [(b"a\0b", b"1"), (b"\0", None), (b"c", b"2")])], iter([9] * 9))
        intake = intake_of(played, key_sizes=False)
        intake.take(10, 30, 0)
        batch = intake.batch()

        assert batch is not None
        assert [header["key"] for header in batch.column("headers").to_pylist()[0]] == ["a", "", "c"]
        intake_of(Played([], iter([9])), pa.schema([ALL.field("value")]), key_sizes=False).close()
    assert caplog.text.count("truncated at their first NUL") == 1
