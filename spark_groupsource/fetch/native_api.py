"""For ctypes: the C API of the librdkafka inside confluent-kafka, and this package's _native.c, which calls it.

Everything is checked first. The library must be the one that confluent-kafka uses, in a version whose API is known, with every
function that is called. And _native.c must have been compiled for this version of the package.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping
from ctypes import POINTER, c_char, c_char_p, c_int, c_int32, c_int64, c_size_t, c_ssize_t, c_uint64, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import confluent_kafka
import confluent_kafka.cimpl

_OLDEST = 0x02100000
_BELOW = 0x03000000
"""The known versions of librdkafka. Within a major version, public structs and functions keep their ABI. From 2.2 to
2.11 at least a consumer's position moves too far at the end of a partition (librdkafka #4844), which would lose a record."""

_OUR_ABI = 8
"""`GS_ABI` of _native.c."""

_OUR_FILE = Path(__file__).with_name("_native.so")
"""`_native.c`, compiled. setup.py gives it this name in a source tree and in every wheel."""

_EVENT_TEXT = 512
"""`EVENT_TEXT` of _native.c."""

_ERROR_TOPIC = 256
"""`ERROR_TOPIC` of sink/_rows.c."""

MOST_COLUMNS = 8
"""`COLUMNS` of _native.c."""

PRODUCER = 0
CONSUMER = 1
CONF_OK = 0
NO_ERROR = 0

TEXT_BYTES = 512
"""The size of the buffer for an error text of librdkafka."""

Struct = TypeVar("Struct", bound=ctypes.Structure)

ErrorCallback = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_void_p)
LogCallback = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_char_p)
RefreshCallback = ctypes.CFUNCTYPE(None, c_void_p, c_char_p, c_void_p)


_INSTALL = (
    "install the wheel of spark-groupsource for this platform, or run pip install --force-reinstall --no-cache-dir --no-deps "
    "spark-groupsource where there is a C compiler"
)
_INSTALL_CONFLUENT = "install the binary wheel of confluent-kafka 2.16 or a later 2.x"


class NativeUnavailable(Exception):
    """This process cannot use the native reader. The text says why, as a clause.

    Args:
        reason: The text.
        advice: What to install for the native reader, as a clause.
    """

    def __init__(self, reason: str, advice: str = _INSTALL) -> None:
        super().__init__(reason)
        self.advice = advice


class PartitionStruct(ctypes.Structure):
    """`rd_kafka_topic_partition_t`."""

    _fields_ = [
        ("topic", c_char_p),
        ("partition", c_int32),
        ("offset", c_int64),
        ("metadata", c_void_p),
        ("metadata_size", c_size_t),
        ("opaque", c_void_p),
        ("err", c_int),
        ("private", c_void_p),
    ]


class PartitionListStruct(ctypes.Structure):
    """`rd_kafka_topic_partition_list_t`."""

    _fields_ = [("cnt", c_int), ("size", c_int), ("elems", POINTER(PartitionStruct))]


class TopicMetadataStruct(ctypes.Structure):
    """`rd_kafka_metadata_topic_t`."""

    _fields_ = [("topic", c_char_p), ("partition_cnt", c_int), ("partitions", c_void_p), ("err", c_int)]


class MetadataStruct(ctypes.Structure):
    """`rd_kafka_metadata_t`."""

    _fields_ = [
        ("broker_cnt", c_int),
        ("brokers", c_void_p),
        ("topic_cnt", c_int),
        ("topics", POINTER(TopicMetadataStruct)),
        ("orig_broker_id", c_int32),
        ("orig_broker_name", c_char_p),
    ]


class FunctionsStruct(ctypes.Structure):
    """`struct library` of _native.c: the functions of librdkafka that it calls, by their names after `rd_kafka_`."""

    _fields_ = [
        ("consume_batch_queue", c_void_p),
        ("message_destroy", c_void_p),
        ("message_errstr", c_void_p),
        ("message_timestamp", c_void_p),
        ("message_headers", c_void_p),
        ("header_cnt", c_void_p),
        ("header_get_all", c_void_p),
    ]


class IntakeStruct(ctypes.Structure):
    """`struct intake` of _native.c, which explains the fields."""

    _fields_ = [
        ("library", FunctionsStruct),
        ("queue", c_void_p),
        ("messages", c_void_p),
        ("row_limit", c_int64),
        ("byte_limit", c_int64),
        ("columns", c_int64),
        ("column_count", c_int64),
        ("order", c_int32 * MOST_COLUMNS),
        ("key_sizes", c_int64),
        ("topic", c_char_p),
        ("topic_size", c_int64),
        ("partition", c_int32),
        ("rows", c_int64),
        ("seen", c_int64),
        ("fetched", c_int64),
        ("bytes", c_int64),
        ("key_bytes", c_int64),
        ("null_keys", c_int64),
        ("value_bytes", c_int64),
        ("null_values", c_int64),
        ("without_headers", c_int64),
        ("headers", c_int64),
        ("header_key_bytes", c_int64),
        ("header_value_bytes", c_int64),
        ("null_header_values", c_int64),
        ("odd_header_keys", c_int64),
        ("next", c_int64),
        ("first", c_int64),
        ("full", c_int64),
        ("event", c_int64),
        ("event_offset", c_int64),
        ("event_error", c_int32),
        ("event_text", c_char * _EVENT_TEXT),
    ]


class ProducerFunctionsStruct(ctypes.Structure):
    """`struct producer_library` of sink/_rows.c, as `FunctionsStruct`."""

    _fields_ = [
        ("produce_batch", c_void_p),
        ("produceva", c_void_p),
        ("error_code", c_void_p),
        ("error_destroy", c_void_p),
        ("headers_new", c_void_p),
        ("header_add", c_void_p),
        ("headers_destroy", c_void_p),
        ("poll", c_void_p),
        ("topic_name", c_void_p),
        ("message_headers", c_void_p),
        ("header_get_all", c_void_p),
        ("msg_partitioner_murmur2", c_void_p),
    ]


class ColumnStruct(ctypes.Structure):
    """`struct column` of sink/_rows.c, which explains the fields, as those of the next two."""

    _fields_ = [
        ("valid", c_void_p),
        ("offsets", c_void_p),
        ("data", c_void_p),
        ("start", c_int64),
        ("wide", c_int64),
    ]


class RowsStruct(ctypes.Structure):
    """`struct rows` of sink/_rows.c."""

    _fields_ = [
        ("count", c_int64),
        ("key", ColumnStruct),
        ("value", ColumnStruct),
        ("headers", ColumnStruct),
        ("header_key", ColumnStruct),
        ("header_value", ColumnStruct),
        ("topic", c_void_p),
        ("topics", c_void_p),
        ("topic_names", c_void_p),
        ("partitions", c_void_p),
        ("unreported", c_void_p),
    ]


class OutletStruct(ctypes.Structure):
    """`struct outlet` of sink/_rows.c."""

    _fields_ = [
        ("library", ProducerFunctionsStruct),
        ("handle", c_void_p),
        ("messages", c_void_p),
        ("added", c_int64),
        ("checksum", c_uint64),
        ("without_key", c_uint64),
        ("failed", c_int64),
        ("error", c_int32),
        ("error_partition", c_int32),
        ("error_size", c_int64),
        ("error_topic", c_char * _ERROR_TOPIC),
    ]


class ArrayStruct(ctypes.Structure):
    """`struct ArrowArray` of Arrow's C data interface."""

    _fields_ = [
        ("length", c_int64),
        ("null_count", c_int64),
        ("offset", c_int64),
        ("n_buffers", c_int64),
        ("n_children", c_int64),
        ("buffers", c_void_p),
        ("children", c_void_p),
        ("dictionary", c_void_p),
        ("release", c_void_p),
        ("private_data", c_void_p),
    ]


_PARTITIONS = POINTER(PartitionListStruct)
_API: Mapping[str, tuple[Any, tuple[Any, ...]]] = {
    "version": (c_int, ()),
    "err2str": (c_char_p, (c_int,)),
    "conf_new": (c_void_p, ()),
    "conf_set": (c_int, (c_void_p, c_char_p, c_char_p, c_char_p, c_size_t)),
    "conf_set_error_cb": (None, (c_void_p, ErrorCallback)),
    "conf_set_log_cb": (None, (c_void_p, LogCallback)),
    "conf_set_oauthbearer_token_refresh_cb": (None, (c_void_p, RefreshCallback)),
    "conf_enable_sasl_queue": (None, (c_void_p, c_int)),
    "conf_destroy": (None, (c_void_p,)),
    "new": (c_void_p, (c_int, c_void_p, c_char_p, c_size_t)),
    "sasl_background_callbacks_enable": (c_void_p, (c_void_p,)),
    "oauthbearer_set_token": (
        c_int,
        (c_void_p, c_char_p, c_int64, c_char_p, POINTER(c_char_p), c_size_t, c_char_p, c_size_t),
    ),
    "oauthbearer_set_token_failure": (c_int, (c_void_p, c_char_p)),
    "error_string": (c_char_p, (c_void_p,)),
    "error_destroy": (None, (c_void_p,)),
    "set_log_queue": (c_int, (c_void_p, c_void_p)),
    "poll_set_consumer": (c_int, (c_void_p,)),
    "consumer_poll": (c_void_p, (c_void_p, c_int)),
    "consumer_close": (c_int, (c_void_p,)),
    "destroy": (None, (c_void_p,)),
    "queue_get_consumer": (c_void_p, (c_void_p,)),
    "queue_get_partition": (c_void_p, (c_void_p, c_char_p, c_int32)),
    "queue_forward": (None, (c_void_p, c_void_p)),
    "queue_destroy": (None, (c_void_p,)),
    "query_watermark_offsets": (c_int, (c_void_p, c_char_p, c_int32, POINTER(c_int64), POINTER(c_int64), c_int)),
    "topic_new": (c_void_p, (c_void_p, c_char_p, c_void_p)),
    "topic_destroy": (None, (c_void_p,)),
    "metadata": (c_int, (c_void_p, c_int, c_void_p, POINTER(POINTER(MetadataStruct)), c_int)),
    "metadata_destroy": (None, (POINTER(MetadataStruct),)),
    "topic_partition_list_new": (_PARTITIONS, (c_int,)),
    "topic_partition_list_add": (POINTER(PartitionStruct), (_PARTITIONS, c_char_p, c_int32)),
    "topic_partition_list_destroy": (None, (_PARTITIONS,)),
    "assign": (c_int, (c_void_p, _PARTITIONS)),
    "position": (c_int, (c_void_p, _PARTITIONS)),
    "consume_batch_queue": (c_ssize_t, (c_void_p, c_int, c_void_p, c_size_t)),
    "message_destroy": (None, (c_void_p,)),
    "message_errstr": (c_char_p, (c_void_p,)),
    "message_timestamp": (c_int64, (c_void_p, POINTER(c_int32))),
    "message_headers": (c_int, (c_void_p, POINTER(c_void_p))),
    "header_cnt": (c_size_t, (c_void_p,)),
    "header_get_all": (c_int, (c_void_p, c_size_t, POINTER(c_void_p), POINTER(c_void_p), POINTER(c_size_t))),
    "conf_set_opaque": (None, (c_void_p, c_void_p)),
    "conf_set_dr_msg_cb": (None, (c_void_p, c_void_p)),
    "poll": (c_int, (c_void_p, c_int)),
    "DescribeCluster": (None, (c_void_p, c_void_p, c_void_p)),
    "queue_new": (c_void_p, (c_void_p,)),
    "queue_poll": (c_void_p, (c_void_p, c_int)),
    "event_destroy": (None, (c_void_p,)),
    "flush": (c_int, (c_void_p, c_int)),
    "purge": (c_int, (c_void_p, c_int)),
    "produce_batch": (c_int, (c_void_p, c_int32, c_int, c_void_p, c_int)),
    "produceva": (c_void_p, (c_void_p, c_void_p, c_size_t)),
    "topic_name": (c_char_p, (c_void_p,)),
    "msg_partitioner_murmur2": (c_int32, (c_void_p, c_void_p, c_size_t, c_int32, c_void_p, c_void_p)),
    "default_topic_conf_dup": (c_void_p, (c_void_p,)),
    "topic_conf_set_opaque": (None, (c_void_p, c_void_p)),
    "topic_conf_set_partitioner_cb": (None, (c_void_p, c_void_p)),
    "topic_conf_destroy": (None, (c_void_p,)),
    "headers_new": (c_void_p, (c_size_t,)),
    "header_add": (c_int, (c_void_p, c_char_p, c_ssize_t, c_void_p, c_ssize_t)),
    "headers_destroy": (None, (c_void_p,)),
    "init_transactions": (c_void_p, (c_void_p, c_int)),
    "begin_transaction": (c_void_p, (c_void_p,)),
    "send_offsets_to_transaction": (c_void_p, (c_void_p, _PARTITIONS, c_void_p, c_int)),
    "commit_transaction": (c_void_p, (c_void_p, c_int)),
    "abort_transaction": (c_void_p, (c_void_p, c_int)),
    "consumer_group_metadata_new": (c_void_p, (c_char_p,)),
    "consumer_group_metadata_destroy": (None, (c_void_p,)),
    "error_code": (c_int, (c_void_p,)),
    "error_is_fatal": (c_int, (c_void_p,)),
    "error_is_retriable": (c_int, (c_void_p,)),
    "error_txn_requires_abort": (c_int, (c_void_p,)),
}
"""By the name after `rd_kafka_`: the result, then the arguments. `rd_kafka_t *` and the like are addresses."""

_OUR_PREFIX = "gs_"
_OUR_API: Mapping[str, tuple[Any, tuple[Any, ...]]] = {
    "abi": (c_int64, ()),
    "size_of_intake": (c_int64, ()),
    "take": (None, (POINTER(IntakeStruct), c_int64, c_int64, c_int)),
    "batch": (c_int64, (POINTER(IntakeStruct), POINTER(ArrayStruct))),
    "forget_fetched": (None, (POINTER(IntakeStruct),)),
    "close": (None, (POINTER(IntakeStruct),)),
    "key_size": (c_int64, (c_void_p,)),
    "size_of_outlet": (c_int64, ()),
    "size_of_rows": (c_int64, ()),
    "add": (None, (POINTER(OutletStruct), POINTER(RowsStruct))),
    "produce": (c_int64, (POINTER(OutletStruct), POINTER(RowsStruct), c_int64, c_int)),
    "delivered": (None, (c_void_p, c_void_p, c_void_p)),
    "partition": (c_int32, (c_void_p, c_void_p, c_size_t, c_int32, c_void_p, c_void_p)),
}
"""The functions of _native.c and sink/_rows.c, by the name after `gs_`."""


@dataclass(frozen=True)
class Native:
    """Both libraries: `kafka.assign` is `rd_kafka_assign`, `ours.take` is `gs_take`. Other threads run during a call."""

    kafka: Any
    ours: Any
    functions: FunctionsStruct
    producer_functions: ProducerFunctionsStruct
    key_sizes: bool
    """Whether `ours.key_size` finds the size of a header's key in this librdkafka."""


class _Functions:
    """The functions of a library, by their names without its prefix."""

    def __init__(self, library: ctypes.CDLL, prefix: str, api: Mapping[str, tuple[Any, tuple[Any, ...]]]) -> None:
        for name, (result, arguments) in api.items():
            try:
                function = getattr(library, prefix + name)
            except AttributeError:
                advice = _INSTALL if prefix == _OUR_PREFIX else _INSTALL_CONFLUENT
                raise NativeUnavailable(f"there is no {prefix}{name} in {library._name}", advice) from None
            function.restype = result
            function.argtypes = arguments
            setattr(self, name, function)


@functools.cache
def why_unavailable() -> NativeUnavailable | None:
    """Return why this process cannot use the native reader, or None if it can."""
    try:
        native()
    except NativeUnavailable as unavailable:
        return unavailable.with_traceback(None)
    return None


@functools.cache
def native() -> Native:
    """Load both libraries and check them.

    Raises:
        NativeUnavailable: They cannot be used.
    """
    ours: Any = _Functions(_load(_our_file(), _INSTALL), _OUR_PREFIX, _OUR_API)
    sizes = (ours.size_of_intake(), ours.size_of_outlet(), ours.size_of_rows())
    if ours.abi() != _OUR_ABI or sizes != tuple(map(ctypes.sizeof, (IntakeStruct, OutletStruct, RowsStruct))):
        raise NativeUnavailable("its C code was compiled for another version of this package")
    # This module of confluent-kafka is linked to the bundled librdkafka, so the symbols are found through it.
    kafka: Any = _Functions(_load(confluent_kafka.cimpl.__file__, _INSTALL_CONFLUENT), "rd_kafka_", _API)
    version, theirs = kafka.version(), confluent_kafka.libversion()[1]
    if version != theirs or not _OLDEST <= version < _BELOW:
        raise NativeUnavailable(
            f"librdkafka has version 0x{version:08x}, and confluent-kafka uses 0x{theirs:08x}: they must be the same, at least "
            f"0x{_OLDEST:08x} and below 0x{_BELOW:08x}",
            _INSTALL_CONFLUENT,
        )
    functions, producer_functions = _pointers(kafka, FunctionsStruct), _pointers(kafka, ProducerFunctionsStruct)
    return Native(kafka, ours, functions, producer_functions, _finds_key_sizes(kafka, ours))


_TRIED_KEYS = (b"", b"\0", b"a\0b", b"k" * 300)
_TRIED_VALUES = (None, b"", b"v\0v")


def _finds_key_sizes(kafka: Any, ours: Any) -> bool:
    """Return whether this librdkafka keeps the size of a header's key where `gs_key_size` reads it."""
    tried = [(key, value) for key in _TRIED_KEYS for value in _TRIED_VALUES]
    headers = kafka.headers_new(len(tried))
    try:
        found = []
        for at, (key, value) in enumerate(tried):
            kafka.header_add(headers, key, len(key), value, len(value or b""))
            name, content, size = c_void_p(), c_void_p(), c_size_t()
            kafka.header_get_all(headers, at, ctypes.byref(name), ctypes.byref(content), ctypes.byref(size))
            found.append(ours.key_size(name))
        return found == [len(key) for key, _ in tried]
    finally:
        kafka.headers_destroy(headers)


def _pointers(kafka: Any, struct: type[Struct]) -> Struct:
    return struct(**{name: ctypes.cast(getattr(kafka, name), c_void_p) for name, *_ in struct._fields_})


def _our_file() -> str:
    if _OUR_FILE.exists():
        return str(_OUR_FILE)
    raise NativeUnavailable(
        f"its C code is not compiled in {Path(__file__).parents[1]}: this is a copy of the sources, the wheel for any platform, "
        "or there was no C compiler when the package was installed"
    )


def _load(file: str, advice: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(file)
    except OSError as error:
        raise NativeUnavailable(f"{Path(file).name} cannot be loaded: {error}", advice) from None
