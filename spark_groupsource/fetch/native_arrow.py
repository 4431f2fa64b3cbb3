"""librdkafka's messages to an Arrow record batch: Python allocates one block of memory, and _native.c copies into it."""

from __future__ import annotations

import ctypes
from typing import Any

import pyarrow as pa

from spark_groupsource.fetch.arrow_schema import column_names
from spark_groupsource.fetch.native_api import IntakeStruct
from spark_groupsource.partition import TopicPartition

_COPIED = {"key": 1, "value": 2, "offset": 4, "timestamp": 8, "timestamptype": 16, "headers": 32}
"""The columns that `gs_fill` copies: `enum column` of _native.c."""

_SECTIONS = 16
"""How many buffers a block has. Their indexes are in `enum section` of _native.c."""

_BITMAPS = {"key": 0, "value": 3}
"""The bitmap of nulls of a column that may have nulls, as an index of a buffer."""

_BUFFERS = {"key": (1, 2), "value": (4, 5), "offset": (6,), "timestamp": (7,), "timestamptype": (8,)}
"""The other buffers of a column. `headers` has more than one array."""


def copied_columns(schema: pa.Schema) -> int:
    """Return `IntakeStruct.columns` for the columns of this schema."""
    return sum(_COPIED.get(name, 0) for name in column_names(schema))


class NativeBatches:
    """The record batches of one partition, with the columns of `schema`."""

    def __init__(self, ours: Any, partition: TopicPartition, schema: pa.Schema) -> None:
        self._ours = ours
        self._schema = schema
        self._columns = [(name, field.type) for name, field in zip(column_names(schema), schema, strict=True)]
        # These columns are the same in every row: each batch has a slice of one array.
        self._same = {
            "topic": pa.repeat(pa.scalar(partition.topic, pa.string()), 1),
            "partition": pa.repeat(pa.scalar(partition.partition, pa.int32()), 1),
        }

    def batch(self, state: IntakeStruct) -> pa.RecordBatch:
        """Return the rows that `gs_take` has taken in, free their messages and begin the next batch. There must be a row."""
        rows = state.rows
        block = _Block(self._ours, state)
        columns = [self._repeated(name, rows) if name in self._same else block.column(name, kind) for name, kind in self._columns]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _repeated(self, name: str, rows: int) -> pa.Array:
        if len(self._same[name]) < rows:
            self._same[name] = pa.repeat(self._same[name][0], rows)
        return self._same[name].slice(0, rows)


class _Block:
    """The columns that `gs_fill` has copied, in one block of memory."""

    def __init__(self, ours: Any, state: IntakeStruct) -> None:
        # Read first: `fill` sets these fields to 0.
        self._rows, self._headers = state.rows, state.headers
        self._nulls = {"key": state.null_keys, "value": state.null_values, "headers": state.without_headers}
        self._null_header_values, self._odd_header_keys = state.null_header_values, state.odd_header_keys
        self._begins, self._sizes = (ctypes.c_int64 * _SECTIONS)(), (ctypes.c_int64 * _SECTIONS)()
        self._block = pa.allocate_buffer(ours.layout(state, self._begins, self._sizes))
        ours.fill(state, self._block.address, self._begins, self._sizes)

    def column(self, name: str, kind: pa.DataType) -> pa.Array:
        """Return a column that was copied. Bytes that are to be a text are not checked to be UTF-8 (see `as_type`)."""
        if name == "headers":
            return self._header_lists(kind)
        bitmap = self._bitmap(_BITMAPS[name]) if name in _BITMAPS else None
        buffers = [bitmap, *map(self._part, _BUFFERS[name])]
        return pa.Array.from_buffers(kind, self._rows, buffers, self._nulls.get(name, 0))

    def _header_lists(self, kind: pa.DataType) -> pa.Array:
        key_type = pa.binary() if self._odd_header_keys else pa.string()
        keys = pa.Array.from_buffers(key_type, self._headers, [None, self._part(11), self._part(12)], 0)
        if self._odd_header_keys:
            # Java, and so Spark, reads a key that is not UTF-8 like this.
            keys = pa.array([key.decode("utf-8", "replace") for key in keys.to_pylist()], pa.string())
        value_buffers = [self._bitmap(13), self._part(14), self._part(15)]
        values = pa.Array.from_buffers(pa.binary(), self._headers, value_buffers, self._null_header_values)
        each = pa.Array.from_buffers(kind.value_type, self._headers, [None], 0, children=[keys, values])
        return pa.Array.from_buffers(kind, self._rows, [self._bitmap(9), self._part(10)], self._nulls["headers"], children=[each])

    def _part(self, section: int) -> pa.Buffer:
        return self._block.slice(self._begins[section], self._sizes[section])

    def _bitmap(self, section: int) -> pa.Buffer | None:
        return self._part(section) if self._sizes[section] else None
