"""A native consumer that reads several partitions at the same time, each from its own librdkafka queue.

The class is separate because once the application has forwarded a partition's queue, even to nowhere, librdkafka never again
forwards that queue to the consumer's queue, so an ordinary consumer would find no records.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from spark_groupsource.fetch.contract import FetchRange, FetchSettings, Intake
from spark_groupsource.fetch.native_consumer import NativeConsumer, NativeIntake, read
from spark_groupsource.fetch.shared import read_shared
from spark_groupsource.native.structs import PartitionListStruct
from spark_groupsource.partition import TopicPartition


def read_all(ranges: Sequence[FetchRange], settings: FetchSettings) -> Iterator[pa.RecordBatch]:
    """Read ranges with the native reader, as described in `spark_groupsource.fetch.choice.fetch_shared`.

    Raises:
        NativeUnavailable: This process cannot use the native reader.
    """
    return read_shared(ranges, settings, NativeSharedConsumer, read)


class NativeSharedConsumer(NativeConsumer):
    """A `SharedConsumer` that calls librdkafka's consumer directly. Raises the same errors as `NativeConsumer`."""

    def __init__(self, client: Mapping[str, str]) -> None:
        super().__init__(client)
        self._queues: dict[TopicPartition, int] = {}
        """The queues of the assigned partitions. Each assignment looks them up again, because a recreated topic has new
        queues."""

    def assign_all(self, ranges: Sequence[FetchRange]) -> None:
        """See `SharedConsumer`."""
        self._assigned = True
        partitions: ctypes._Pointer[PartitionListStruct] = self._kafka.topic_partition_list_new(len(ranges))
        try:
            for fetch_range in ranges:
                topic = fetch_range.topic.encode()
                # Get the queue before `assign`, which would forward it to the consumer's queue. Records from all partitions would
                # arrive there, and an intake does not check a message's partition.
                self._queues[TopicPartition(fetch_range.topic, fetch_range.partition)] = self._own_queue(
                    topic, fetch_range.partition
                )
                added = self._kafka.topic_partition_list_add(partitions, topic, fetch_range.partition)
                added.contents.offset = fetch_range.start
            self._raise_for(self._kafka.assign(self._handle, partitions))
        finally:
            self._kafka.topic_partition_list_destroy(partitions)

    def own_intake(self, fetch_range: FetchRange, schema: pa.Schema, batch_bytes: int, rows: int) -> Intake:
        """See `SharedConsumer`."""
        queue = self._queues[TopicPartition(fetch_range.topic, fetch_range.partition)]
        return NativeIntake(queue, fetch_range, schema, batch_bytes, rows)

    def unassign(self) -> None:
        """See `FetchConsumer`. Records that were fetched but not taken are freed."""
        super().unassign()
        for queue in self._queues.values():
            self._free_records(queue)
        self._destroy_queues()

    def close(self) -> None:
        """See `FetchConsumer`."""
        self._destroy_queues()
        super().close()

    def _own_queue(self, topic: bytes, partition: int) -> int:
        queue: int | None = self._kafka.queue_get_partition(self._handle, topic, partition)
        if queue is None:
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG))
        self._kafka.queue_forward(queue, None)
        return queue

    def _free_records(self, queue: int) -> None:
        """Free the records in a partition's queue. librdkafka drops records that arrive after the assignment has ended."""
        message = ctypes.c_void_p()
        while self._kafka.consume_batch_queue(queue, 0, ctypes.byref(message), 1) > 0:
            self._kafka.message_destroy(message)

    def _destroy_queues(self) -> None:
        while self._queues:
            self._kafka.queue_destroy(self._queues.popitem()[1])
