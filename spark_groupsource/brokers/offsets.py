"""Sends ListOffsets requests, which return where a log starts, where it ends, or its first record at or after a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from confluent_kafka import IsolationLevel
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from spark_groupsource.partition import TopicPartition

PARTITIONS_IN_A_CALL = 1000
"""The most partitions in a call, because the time that librdkafka needs grows with the square of their number."""

NO_RECORD = -1
"""The offset that a broker returns if no record is at or after the given timestamp.

If the leader of a partition does not answer, librdkafka returns -1001 without an error.
"""

EARLIEST_OFFSET: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST_OFFSET: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]


def request_offsets(
    admin: AdminClient,
    specs: Mapping[TopicPartition, OffsetSpec],
    timeout_s: float,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[TopicPartition, Future[Any]]:
    """Ask for one offset of each partition. All requests are sent before this returns.

    Args:
        admin: The client that asks.
        specs: The offset to ask for in each partition.
        timeout_s: How many seconds each request waits for its answer.
        isolation: Whether `LATEST_OFFSET` means the high watermark or the last stable offset.

    Returns:
        A future for each partition, in the order of `specs`. It holds a `ListOffsetsResultInfo` or raises `KafkaException`.
    """
    answers: dict[TopicPartition, Future[Any]] = {}
    for portion in portions(list(specs), PARTITIONS_IN_A_CALL):
        asked = {KafkaTopicPartition(*partition): specs[partition] for partition in portion}
        futures = admin.list_offsets(asked, isolation_level=isolation, request_timeout=timeout_s)
        answers.update(zip(portion, futures.values(), strict=True))
    return answers


def portions(partitions: Sequence[TopicPartition], size: int) -> Iterator[Sequence[TopicPartition]]:
    """Split the partitions into portions of `size`, in their order. The last portion may be smaller."""
    for begin in range(0, len(partitions), size):
        yield partitions[begin : begin + size]


class Found(NamedTuple):
    """An offset that a leader returned."""

    offset: int
    epoch: int | None = None
    """The leader epoch of the log at that time. `None` if the broker does not report it."""


class Kept(NamedTuple):
    """A group's commit for one partition."""

    offset: int
    """The committed offset, or a number below 0 if there is none."""
    metadata: str | None
    """The text committed with the offset."""
    epoch: int | None = None
    """The leader epoch committed with the offset (KIP-320). No record below the offset has a later epoch. `None` if not known."""


def kept_of(found: Any) -> Kept:
    """Return a group's commit from confluent-kafka's `TopicPartition`."""
    return Kept(found.offset, metadata_of(found), epoch_of(found))


def epoch_of(found: Any) -> int | None:
    """Return the leader epoch of an offset that a broker returned, or `None` if it is not known."""
    epoch: int | None = found.leader_epoch
    return None if epoch is None or epoch < 0 else epoch


def metadata_of(found: Any) -> str | None:
    """Return the metadata of a committed offset. Any client can write it, so it is `None` if it is not UTF-8 text."""
    try:
        text: str | None = found.metadata
    except UnicodeDecodeError:
        return None
    # confluent-kafka commits the text with a NUL at its end, which librdkafka drops when it reads the text.
    return None if text is None else text.partition("\0")[0]
