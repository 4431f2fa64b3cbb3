"""Turns librdkafka messages into Arrow record batches, which native/_intake.c builds and Arrow's C data interface imports."""

from __future__ import annotations

import ctypes
import functools
import logging
from typing import Any

import pyarrow as pa

from spark_groupsource.fetch.arrow_schema import column_names
from spark_groupsource.native.structs import ArrayStruct, IntakeStruct
from spark_groupsource.partition import TopicPartition

log = logging.getLogger(__name__)

_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestamptype", "headers")
"""The columns in `enum column` of native/_intake.c, in the same order."""


class NativeBatches:
    """Builds record batches with the columns of `schema` from one intake, whose messages all come from `partition`."""

    def __init__(self, ours: Any, state: IntakeStruct, partition: TopicPartition, schema: pa.Schema) -> None:
        self._ours = ours
        self._state = state
        self._schema = schema
        self._names = column_names(schema)
        self._with_binary_keys = _with_binary_keys(schema)
        """The schema for a batch with a header key that is not UTF-8."""
        order = [_COLUMNS.index(name) for name in self._names]
        state.columns = sum(1 << column for column in order)
        state.column_count = len(order)
        state.order[: len(order)] = order
        if "headers" in self._names and not state.key_sizes:
            _warn_of_cut_keys()
        topic = partition.topic.encode()
        state.topic, state.topic_size, state.partition = topic, len(topic), partition.partition

    def batch(self) -> pa.RecordBatch:
        """Return the rows that `gs_take` has taken in (at least one), free their messages and start the next batch.

        String columns are not checked for valid UTF-8 (see `as_type`).

        Raises:
            MemoryError: There is not enough memory for the batch.
        """
        # Read this first, because the C code sets it to 0.
        odd_header_keys = self._state.odd_header_keys
        array = ArrayStruct()
        if not self._ours.batch(self._state, array):
            raise MemoryError(f"no memory for a batch of {self._state.bytes} bytes of records")
        if odd_header_keys:
            return self._with_text_keys(ctypes.addressof(array))
        return pa.RecordBatch._import_from_c(ctypes.addressof(array), self._schema)

    def _with_text_keys(self, array: int) -> pa.RecordBatch:
        """Return the batch with invalid UTF-8 in header keys replaced, as Java and therefore Spark do."""
        batch = pa.RecordBatch._import_from_c(array, self._with_binary_keys)
        at = self._names.index("headers")
        field = self._schema.field(at)
        lists = batch.column(at)
        keys = pa.array([key.decode("utf-8", "replace") for key in lists.values.field(0).to_pylist()], pa.string())
        headers = pa.Array.from_buffers(field.type.value_type, len(keys), [None], 0, children=[keys, lists.values.field(1)])
        texts = pa.Array.from_buffers(field.type, len(lists), lists.buffers()[:2], lists.null_count, children=[headers])
        return batch.set_column(at, field, texts)


@functools.cache
def _warn_of_cut_keys() -> None:
    """Warn, once per process, that header keys are truncated at their first NUL."""
    log.warning(
        "Header keys are truncated at their first NUL, because this package cannot find a key's length in this version of "
        "librdkafka. Keys without a NUL are complete. To read the others, install a later version of spark-groupsource."
    )


def _with_binary_keys(schema: pa.Schema) -> pa.Schema:
    for at, name in enumerate(column_names(schema)):
        if name == "headers":
            field = schema.field(at)
            _, value = field.type.value_type
            schema = schema.set(at, field.with_type(pa.list_(pa.struct([pa.field("key", pa.binary()), value]))))
    return schema
