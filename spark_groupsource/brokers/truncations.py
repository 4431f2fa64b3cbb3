"""Uses leader epochs (KIP-320) to find logs that were truncated below a position and have grown again since.

A position has the leader epoch that its log had when it reached that offset. After an unclean leader election, or when a disk is
restored, the log gets a new epoch, and its earlier epochs may end below the position. An OffsetForLeaderEpoch request returns
where they end. librdkafka has no call for this request, but sends it when a consumer seeks to an offset with an epoch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition

from spark_groupsource.brokers.client import LastError, diverging_offset, librdkafka_log, make_client
from spark_groupsource.errors import BrokerUnavailable
from spark_groupsource.partition import TopicPartition, listed
from spark_groupsource.patience import Deadline
from spark_groupsource.timeouts import ASK_AGAIN_S, REQUEST_TIMEOUT_S

log = logging.getLogger(__name__)

_POLL_S = 0.1

_VALID = -2
"""The answer for a position whose log was not truncated below it."""

_OF_WHAT_WAS_FETCHED = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION})
"""Errors about the record at a position, which is below the start of the log or cannot be read. They show that the position is
valid, because librdkafka fetches a record only after it has validated the position."""


@dataclass(frozen=True)
class Validated:
    """The leaders' answers about whether positions are still valid."""

    diverging: dict[TopicPartition, int | None] = field(default_factory=dict)
    """The offsets at which logs were truncated below positions. `None` if the leader has no epoch as old as the position's."""
    unknown: frozenset[TopicPartition] = frozenset()
    """The partitions whose leader did not answer."""


class Truncations:
    """Finds logs that were truncated below positions. Only one thread may use it."""

    def __init__(
        self, client_settings: Mapping[str, str], group: str, *, patience_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Prepare the settings without sending a request.

        Args:
            client_settings: librdkafka settings that every client needs.
            group: the consumer group, which the client does not join.
            patience_s: how many seconds in total a leader may fail to answer before `below` raises an error.
            clock: returns monotonic time in seconds.
        """
        self._settings = {
            **client_settings,
            "group.id": group,
            "enable.auto.commit": "false",
            "auto.offset.reset": "error",
            "enable.partition.eof": "true",
            # Any record shows that a position is valid, even an aborted one. Records are dropped afterwards.
            "isolation.level": "read_uncommitted",
            "fetch.wait.max.ms": "10",
            "max.partition.fetch.bytes": "16384",
            # With the default, the records of one partition would delay the Fetch of the others by a second.
            "fetch.queue.backoff.ms": "1",
        }
        self._patience_s = patience_s
        self._clock = clock
        self._silent_s: dict[TopicPartition, float] = {}
        """For how many seconds in a row each partition's leader has failed to answer."""
        self._valid: dict[TopicPartition, tuple[int, int, int]] = {}
        """Valid positions with their epochs, and the logs' epochs in which they are valid."""
        self._asked: dict[TopicPartition, tuple[int, int, int]] = {}
        """The positions that were last asked about, with their epochs and the logs' epochs."""
        self._asked_at = 0.0
        self._answer = Validated()

    def below(
        self,
        positions: Mapping[TopicPartition, tuple[int, int]],
        ends: Mapping[TopicPartition, int],
        epochs: Mapping[TopicPartition, int],
    ) -> Validated:
        """Return the positions that are above the offset at which their log was truncated.

        Args:
            positions: offsets with their leader epochs (`losses.to_validate`).
            ends: these logs' current ends.
            epochs: these logs' current leader epochs. A position that is valid in an epoch is not asked about again.

        Raises:
            BrokerUnavailable: a leader has not answered for `patience_s` seconds.
            OptionError, AuthenticationFailed: see `make_client`.
        """
        keys = {partition: (*position, epochs[partition]) for partition, position in positions.items()}
        self._valid = {partition: key for partition, key in self._valid.items() if keys.get(partition) == key}
        asked = {partition: key for partition, key in keys.items() if partition not in self._valid}
        if not asked:
            return Validated()
        # Until a truncation is certain, the leader is asked again, each time with a new client.
        if asked != self._asked or self._clock() >= self._asked_at + ASK_AGAIN_S:
            began = self._clock()
            found = self._ask({partition: positions[partition] for partition in asked}, ends)
            self._note_silence(asked.keys() - found.keys(), self._clock() - began)
            # Brokers that keep no epochs, as for old message formats, never have an epoch as old as the position's. Their answer
            # proves nothing, unless all their epochs are older than the position's, because then their metadata was restored.
            valid = {
                partition
                for partition, at in found.items()
                if at == _VALID or (at < 0 and positions[partition][1] <= epochs[partition])
            }
            self._valid |= {partition: asked.pop(partition) for partition in valid}
            diverging = {
                partition: None if found[partition] < 0 else found[partition] for partition in asked if partition in found
            }
            self._answer = Validated(diverging, frozenset(asked.keys() - found.keys()))
            self._asked, self._asked_at = asked, self._clock()
        return self._answer

    def _note_silence(self, silent: Collection[TopicPartition], seconds: float) -> None:
        self._silent_s = {partition: self._silent_s.get(partition, 0.0) + seconds for partition in silent}
        for partition, silent_s in sorted(self._silent_s.items()):
            if silent_s >= self._patience_s:
                raise BrokerUnavailable(
                    f"The leader of {partition} has not answered for {silent_s:.0f} s, so it is not known whether its log still "
                    "contains the records that the query has read. Nothing is lost. Check that its broker is running and that "
                    "this driver can reach it, and that the query's user is allowed to read the topic."
                )

    def _ask(
        self, positions: Mapping[TopicPartition, tuple[int, int]], ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return `_VALID`, the diverging offset, or -1 if no epoch is as old, for each position whose leader answers."""
        consumer = make_client(Consumer, self._settings, LastError().record, librdkafka_log)
        found: dict[TopicPartition, int] = {}
        failed: dict[TopicPartition, KafkaError] = {}
        sought: set[TopicPartition] = set()
        deadline = Deadline(REQUEST_TIMEOUT_S, clock=self._clock)
        try:
            # librdkafka always validates a seek, but an assignment with an epoch only if the partition is new to the client.
            consumer.assign([KafkaTopicPartition(*partition, ends[partition]) for partition in sorted(positions)])
            while positions.keys() - found.keys() - failed.keys() and not deadline.over:
                event = consumer.poll(_POLL_S)
                if event is None or event.topic() is None:
                    continue
                partition = TopicPartition(event.topic() or "", event.partition() or 0)
                error = event.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    error = None
                if partition in sought:
                    diverging = None if error is None else diverging_offset(error)
                    if diverging is not None:
                        found[partition] = diverging
                    elif error is None or error.code() in _OF_WHAT_WAS_FETCHED:
                        found[partition] = _VALID
                    else:
                        failed[partition] = error
                    # Pause the partition, because a broker returns a whole batch from only one partition, and nothing from the
                    # others if their batches are larger.
                    consumer.pause([KafkaTopicPartition(*partition)])
                elif error is not None:
                    failed[partition] = error
                else:
                    offset, epoch = positions[partition]
                    consumer.seek(KafkaTopicPartition(*partition, offset, leader_epoch=epoch))
                    sought.add(partition)
        except KafkaException as refused:
            log.info("validating positions: %s", refused.args[0].str())
        finally:
            consumer.close()
        if unknown := sorted(positions.keys() - found.keys()):
            log.warning(
                "the leaders of %s have not confirmed that their logs still contain the records that the query has read (%s). "
                "The query will read nothing from these partitions until the leaders do. It is not known yet whether records "
                "are lost",
                listed(unknown),
                listed(sorted({failed[partition].str() for partition in failed.keys() - found.keys()}))
                or f"no answer for {REQUEST_TIMEOUT_S:.0f} s",
            )
        return found
