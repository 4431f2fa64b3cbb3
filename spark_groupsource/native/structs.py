"""Declares, for ctypes, the structs and constants in librdkafka's C API and in this package's own C code."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint64, c_void_p

_EVENT_TEXT = 512
"""`EVENT_TEXT` in _intake.c."""

_ERROR_TOPIC = 256
"""`ERROR_TOPIC` in _outlet.c."""

MOST_COLUMNS = 8
"""`COLUMNS` in _intake.c."""

PRODUCER = 0
CONSUMER = 1
CONF_OK = 0
NO_ERROR = 0

TEXT_BYTES = 512
"""The size of the buffer for a librdkafka error message, in bytes."""

ErrorCallback = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_void_p)
LogCallback = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_char_p)
RefreshCallback = ctypes.CFUNCTYPE(None, c_void_p, c_char_p, c_void_p)
ThrottleCallback = ctypes.CFUNCTYPE(None, c_void_p, c_char_p, c_int32, c_int, c_void_p)


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
    """`struct library` in _intake.c: the librdkafka functions that it calls, named without `rd_kafka_`."""

    _fields_ = [
        ("consume_batch_queue", c_void_p),
        ("message_destroy", c_void_p),
        ("message_errstr", c_void_p),
        ("message_timestamp", c_void_p),
        ("message_leader_epoch", c_void_p),
        ("message_headers", c_void_p),
        ("header_cnt", c_void_p),
        ("header_get_all", c_void_p),
    ]


class IntakeStruct(ctypes.Structure):
    """`struct intake` in _intake.c, where the fields are explained."""

    _fields_ = [
        ("library", FunctionsStruct),
        ("queue", c_void_p),
        ("messages", c_void_p),
        ("row_limit", c_int64),
        ("byte_limit", c_int64),
        ("newest_epoch", c_int64),
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
    """`struct producer_library` in _outlet.c: the librdkafka functions that it calls, named without `rd_kafka_`."""

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
    """`struct column` in _outlet.c, where the fields of this and the next two structs are explained."""

    _fields_ = [
        ("valid", c_void_p),
        ("offsets", c_void_p),
        ("data", c_void_p),
        ("start", c_int64),
        ("wide", c_int64),
    ]


class RowsStruct(ctypes.Structure):
    """`struct rows` in _outlet.c."""

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
    """`struct outlet` in _outlet.c."""

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
    """`struct ArrowArray` in Arrow's C data interface."""

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
