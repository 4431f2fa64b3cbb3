"""What the steps of `groupkafka check` know of a query that reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from spark_groupsource.brokers.group_view import GroupView
from spark_groupsource.brokers.topics import Topics
from spark_groupsource.handoff.commit_record import GroupCommit
from spark_groupsource.handoff.losses import LogState
from spark_groupsource.options.model import Options
from spark_groupsource.partition import TopicPartition
from spark_groupsource.timeouts import CHECK_STEP_S


@dataclass
class Source:
    """The options, and what the steps so far have found out. A step adds what later steps need."""

    options: Options
    partitions: list[TopicPartition] = field(default_factory=list)
    """Those of the topics that this user may read. `topics.describe_topics` adds them."""
    group: GroupView | None = None
    """The group as it is now; `None` if it does not exist. `group.describe_group` adds it."""
    logs: LogState | None = None
    """What the leaders of the partitions have answered. `start.find_start` adds it."""

    @property
    def kafka(self) -> Mapping[str, str]:
        """The options `kafka.*`, translated for librdkafka."""
        return self.options.kafka

    @cached_property
    def topics(self) -> Topics:
        """The brokers, asked for what a query of these options would read.

        Raises:
            OptionError: As `Topics` does.
            AuthenticationFailed: As `Topics` does.
        """
        return self.topics_as(read_committed=self.options.read_committed)

    def topics_as(self, *, read_committed: bool) -> Topics:
        """Return the same brokers, asked for last stable offsets or for high watermarks."""
        return Topics(self.options.client_settings(), self.options, read_committed=read_committed, patience_s=CHECK_STEP_S)

    @property
    def commits(self) -> dict[TopicPartition, GroupCommit]:
        """What the group has committed, by partition."""
        return {} if self.group is None else {seen.partition: seen.commit for seen in self.group.partitions}
