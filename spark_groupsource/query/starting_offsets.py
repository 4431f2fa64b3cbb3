"""Finds the starting offsets for partitions without a commit, from the options that were set when the stream began."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

from spark_groupsource.brokers.topic_ids import TopicIds
from spark_groupsource.brokers.topics import Topics
from spark_groupsource.errors import GroupKafkaError, OptionError
from spark_groupsource.handoff.commit_record import GroupCommit, writable_cluster_id
from spark_groupsource.handoff.losses import topic_gone
from spark_groupsource.handoff.plan_offset import FromTime, PlanOffset, Start, Starts
from spark_groupsource.options.model import Options
from spark_groupsource.options.start_and_end import ByTime, found_out, named_starts, no_record, offsets_at
from spark_groupsource.partition import TopicPartition, listed, topics_of
from spark_groupsource.patience import Deadline
from spark_groupsource.timeouts import ASK_GROUP_EVERY_S, AT_START_S

log = logging.getLogger(__name__)


class StartingOffsets:
    """Returns the starting offsets of partitions without a commit.

    The options gave these offsets when the stream began. Partitions that were added later are read from the beginning.

    Used on the runner's main thread. The survey's threads only call the object itself.
    """

    def __init__(
        self, options: Options, topics: Topics, topic_ids: TopicIds, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Start without a stream, and without sending a request.

        Args:
            options: the source's options.
            topics: the subscribed topics.
            topic_ids: their ids.
            clock: returns monotonic time in seconds.
        """
        self._options = options
        self._topics = topics.without_patience()  # the main thread uses `topics` for ends at the same time
        self._topic_ids = topic_ids
        self._clock = clock
        self._starts: Starts = MappingProxyType({})
        self.ids: Mapping[str, str] = MappingProxyType({})
        """The topics' ids when the stream began, where known."""
        self._found: dict[TopicPartition, int] = {}
        """Starting offsets that this run has found. Several threads add to this dict, and the first answer for a partition is
        kept."""
        self._needed: set[TopicPartition] = set()
        """The partitions that the stream has not owned yet and that had no commit in the group at the last check."""
        self._ask_at = -math.inf
        self._is_new = False
        """Whether the stream has not planned yet. Then a start that cannot be found is a mistake in the options."""

    def for_new_stream(self, partitions: Collection[TopicPartition]) -> Starts:
        """Return where these partitions start in a new stream, except those that are read from the beginning.

        If a leader does not answer within a few seconds, the start stays as the options describe it.

        Raises:
            NotAuthorized, AuthenticationFailed: see topics.Topics.
        """
        named = named_starts(self._options.stream_start, partitions)
        asked = {partition: start for partition, start in named.items() if start is not None}
        found: dict[TopicPartition, int | None] = {}
        for _ in Deadline(AT_START_S, clock=self._clock).attempts():
            unknown = {partition: start for partition, start in asked.items() if partition not in found}
            found |= found_out(unknown, self._topics, or_latest=self._or_latest)
            if len(found) == len(asked):
                break
        else:
            unanswered = sorted(asked.keys() - found.keys())
            log.warning(
                "the leaders of %d partitions are not answering: %s. The query will look up these partitions' starting offsets "
                "once the leaders answer",
                len(unanswered),
                listed(unanswered, 20),
            )
        return named | {partition: offset for partition, offset in found.items() if offset is not None}

    def begin(self, newest: PlanOffset) -> None:
        """Load the starts from the checkpoint's newest offset. Call this before joining the group."""
        self._starts, self.ids = newest.start_of, newest.topics
        cluster = writable_cluster_id(self._topics.cluster_id())
        if newest.cluster is not None and cluster is not None and newest.cluster != cluster:
            # Another cluster's offsets and topic ids are meaningless here, but times are still valid.
            self._starts = {
                partition: start if isinstance(start, FromTime) else None for partition, start in self._starts.items()
            }
            self.ids = {}
        self._needed = set(self._starts)
        self._is_new = newest.plan < 0

    def __call__(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the starting offsets (inclusive). Partitions whose leaders do not answer now are left out.

        Raises:
            OptionError: a partition has no record at its time, or the options do not name it.
            NotAuthorized, AuthenticationFailed: see topics.Topics.
        """
        began_with = [partition for partition in partitions if partition in self._starts]
        ids = self._topics.ids(topics_of(began_with))
        began_with = [
            partition for partition in began_with if not topic_gone(self.ids.get(partition.topic), ids.get(partition.topic, ""))
        ]
        later = [partition for partition in partitions if partition not in began_with]
        return self._topics.starts(later) | self._found_out(began_with)

    def update_needed(
        self,
        adopted: Collection[TopicPartition],
        assigned: Collection[TopicPartition],
        *,
        read: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, GroupCommit]],
    ) -> None:
        """Update `needed`, at most every ASK_GROUP_EVERY_S. No request is sent if no start is needed.

        This also retries starts that are not known yet, so a late leader delays them by no longer than that interval.

        Args:
            adopted: the partitions that new plans may include.
            assigned: the partitions that the group has assigned to this member.
            read: returns what the group has committed for partitions.

        Raises:
            OptionError: the stream is new, and the options do not name a start for a partition without a commit.
        """
        # Adopted partitions have a commit in the group.
        self._needed.difference_update(adopted)
        if not self._needed or self._clock() < self._ask_at:
            return
        self._ask_at = self._clock() + ASK_GROUP_EVERY_S
        asked = [partition for partition in self._needed if self._options.matches(partition.topic)]
        try:
            commits = read(asked)
            ids = self._topic_ids.now({partition.topic: self.ids.get(partition.topic) for partition in asked})
            void = {topic for topic in topics_of(asked) if topic_gone(self.ids.get(topic), ids.get(topic, ""))}
            self._needed -= {partition for partition in asked if commits.get(partition) is not None or partition.topic in void}
            # The survey finds the starts of the partitions that are assigned to this member.
            self._found_out(self._needed.intersection(asked).difference(assigned))
        except OptionError:
            if self._is_new:
                raise
        except GroupKafkaError as error:
            log.info(
                "failed to check which partitions have no committed offset yet; retrying in %.0f s: %s",
                ASK_GROUP_EVERY_S,
                error,
            )
            return
        self._is_new = False

    @property
    def needed(self) -> Starts:
        """The starts that the next plan must contain, unless their topic was recreated."""
        return {partition: self._start(partition) for partition in self._needed}

    @property
    def _or_latest(self) -> bool:
        """Whether a partition without a record at the starting time starts at its end."""
        return self._options.starting_offsets_by_timestamp_strategy == "latest"

    def _start(self, partition: TopicPartition) -> Start:
        """Return a partition's start, as an offset if it has been found."""
        return self._found.get(partition, self._starts[partition])

    def _found_out(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Find and remember the starting offsets of partitions that the stream began with."""
        starts = {partition: self._start(partition) for partition in partitions}
        by_options = [partition for partition, start in starts.items() if start is None]
        asked = {partition: start for partition, start in starts.items() if start is not None}
        found = found_out(asked, self._topics, or_latest=self._or_latest)
        known = self._keep({partition: offset for partition, offset in found.items() if offset is not None})
        without_record = {
            partition: start.time
            for partition, start in asked.items()
            if isinstance(start, FromTime) and partition in found.keys() - known
        }
        position = self._options.stream_start
        if without_record:
            raise no_record(
                position.option if isinstance(position, ByTime) else "the time at which this stream started", without_record
            )
        return known | self._keep(offsets_at(position, by_options, self._topics) if by_options else {})

    def _keep(self, found: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Remember offsets that were found, and return the ones that were found first."""
        return {partition: self._found.setdefault(partition, offset) for partition, offset in found.items()}
