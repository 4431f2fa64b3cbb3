"""Sends ListOffsets requests, which return where a log starts, where it ends, or its first record at or after a time."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple

from confluent_kafka import IsolationLevel
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from spark_groupsource.partition import TopicPartition

PARTITIONS_IN_A_CALL = 1000
"""The maximum number of partitions in one `list_offsets` call, whose duration grows with the square of their number."""

NO_RECORD = -1
"""The offset that a broker returns if there is no record at or after the given timestamp.

If a partition's leader does not answer, librdkafka returns -1001 without an error.
"""

EARLIEST_OFFSET: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST_OFFSET: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]


def request_offsets(
    admin: AdminClient,
    specs: Mapping[TopicPartition, OffsetSpec],
    timeout_s: float,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[TopicPartition, Future[Any]]:
    """Request one offset for each partition. All requests are sent before this function returns.

    Args:
        admin: The client that sends the requests.
        specs: Which offset to request for each partition.
        timeout_s: How many seconds each request waits for its answer.
        isolation: Whether `LATEST_OFFSET` means the high watermark or the last stable offset.

    Returns:
        A future for each partition, in `specs` order. It returns a `ListOffsetsResultInfo` or raises `KafkaException`.
    """
    answers: dict[TopicPartition, Future[Any]] = {}
    partitions = list(specs)
    for begin in range(0, len(partitions), PARTITIONS_IN_A_CALL):
        portion = partitions[begin : begin + PARTITIONS_IN_A_CALL]
        asked = {KafkaTopicPartition(*partition): specs[partition] for partition in portion}
        futures = admin.list_offsets(asked, isolation_level=isolation, request_timeout=timeout_s)
        answers.update(zip(portion, futures.values(), strict=True))
    return answers


class Found(NamedTuple):
    """An offset that a leader returned."""

    offset: int
    epoch: int | None = None
    """The log's leader epoch when the leader answered. `None` if the broker does not report it."""


class Kept(NamedTuple):
    """A group's commit for one partition."""

    offset: int
    """The committed offset, or a number below 0 if there is none."""
    metadata: str | None
    """The text committed with the offset."""
    epoch: int | None = None
    """The leader epoch committed with the offset (KIP-320). No record below the offset has a later epoch. `None` if unknown."""


def kept_of(found: Any) -> Kept:
    """Convert confluent-kafka's `TopicPartition` to a group's commit."""
    return Kept(found.offset, metadata_of(found), epoch_of(found))


def epoch_of(found: Any) -> int | None:
    """Return the leader epoch of an offset that a broker returned, or `None` if unknown."""
    epoch: int | None = found.leader_epoch
    return None if epoch is None or epoch < 0 else epoch


def metadata_of(found: Any) -> str | None:
    """Return a committed offset's metadata, or `None` if it is not UTF-8. Any client can write it."""
    try:
        text: str | None = found.metadata
    except UnicodeDecodeError:
        return None
    # confluent-kafka commits the text with a trailing NUL, which librdkafka drops when it reads the text.
    return None if text is None else text.partition("\0")[0]
