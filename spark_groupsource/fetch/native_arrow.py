"""librdkafka's messages to an Arrow record batch: Python allocates one block of memory, and _native.c copies into it."""

from __future__ import annotations

import ctypes
from typing import Any

import pyarrow as pa

from spark_groupsource.fetch.arrow_schema import HEADERS_TYPE, arrow_schema
from spark_groupsource.fetch.native_api import IntakeStruct
from spark_groupsource.partition import TopicPartition

_SECTIONS = 16
"""How many buffers a block has. Their indexes are in `enum section` of _native.c."""


class NativeBatches:
    """The record batches of one partition."""

    def __init__(self, ours: Any, partition: TopicPartition, include_headers: bool) -> None:
        self._ours = ours
        self._partition = partition
        self._include_headers = include_headers
        # The columns `topic` and `partition` are the same in every row: each batch has a slice of these.
        self._topics = pa.repeat(pa.scalar(partition.topic, pa.string()), 0)
        self._partitions = pa.repeat(pa.scalar(partition.partition, pa.int32()), 0)

    def batch(self, state: IntakeStruct) -> pa.RecordBatch:
        """Return the rows that `gs_take` has taken in, free their messages and begin the next batch. There must be a row."""
        rows = state.rows
        columns = self._columns(state)
        if len(self._topics) < rows:
            self._topics = pa.repeat(pa.scalar(self._partition.topic, pa.string()), rows)
            self._partitions = pa.repeat(pa.scalar(self._partition.partition, pa.int32()), rows)
        columns[2:2] = [self._topics.slice(0, rows), self._partitions.slice(0, rows)]
        return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(self._include_headers))

    def _columns(self, state: IntakeStruct) -> list[pa.Array]:
        """Return all columns except `topic` and `partition`."""
        # Read first: `fill` sets these fields to 0.
        rows, headers = state.rows, state.headers
        null_keys, null_values = state.null_keys, state.null_values
        without_headers, null_header_values, odd_keys = state.without_headers, state.null_header_values, state.odd_header_keys
        begins, sizes = (ctypes.c_int64 * _SECTIONS)(), (ctypes.c_int64 * _SECTIONS)()
        block = pa.allocate_buffer(self._ours.layout(state, begins, sizes))
        self._ours.fill(state, block.address, begins, sizes)
        parts = [block.slice(begin, size) for begin, size in zip(begins, sizes, strict=True)]

        def bitmap(section: int) -> pa.Buffer | None:
            return parts[section] if sizes[section] else None

        columns = [
            pa.Array.from_buffers(pa.binary(), rows, [bitmap(0), *parts[1:3]], null_keys),
            pa.Array.from_buffers(pa.binary(), rows, [bitmap(3), *parts[4:6]], null_values),
            pa.Array.from_buffers(pa.int64(), rows, [None, parts[6]], 0),
            pa.Array.from_buffers(pa.timestamp("us", tz="UTC"), rows, [None, parts[7]], 0),
            pa.Array.from_buffers(pa.int32(), rows, [None, parts[8]], 0),
        ]
        if self._include_headers:
            keys = pa.Array.from_buffers(pa.binary() if odd_keys else pa.string(), headers, [None, *parts[11:13]], 0)
            if odd_keys:
                # Java, and so Spark, reads a key that is not UTF-8 like this.
                keys = pa.array([key.decode("utf-8", "replace") for key in keys.to_pylist()], pa.string())
            values = pa.Array.from_buffers(pa.binary(), headers, [bitmap(13), *parts[14:16]], null_header_values)
            each = pa.Array.from_buffers(HEADERS_TYPE.value_type, headers, [None], 0, children=[keys, values])
            columns.append(pa.Array.from_buffers(HEADERS_TYPE, rows, [bitmap(9), parts[10]], without_headers, children=[each]))
        return columns
