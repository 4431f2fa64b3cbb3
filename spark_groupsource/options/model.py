"""Defines all of the source's options, and reads a query's options.

Names, defaults and meanings are the same as in Spark's own Kafka source, but `kafka.group.id` is required, and a few options
exist only because the query is a group member. A single error lists all problems before anything starts. No error or `repr` shows
a secret.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, PlainValidator

from spark_groupsource.fetch.contract import BUFFER_BYTES, FetchSettings
from spark_groupsource.handoff.rules import HOLD, HeldClaims
from spark_groupsource.install import with_extra
from spark_groupsource.options.client_settings import EVERY_MEMBER, client_settings, consumer_settings, member_settings
from spark_groupsource.options.described import QueryOptions, described, option
from spark_groupsource.options.names import IGNORED
from spark_groupsource.options.start_and_end import ByOffset, ByTime, Position, start_after_end
from spark_groupsource.options.topic_pattern import INTERNAL_TOPICS, parse_topic_pattern
from spark_groupsource.options.values import (
    EARLIEST,
    LATEST,
    MAX_INT,
    MAX_LONG,
    boolean,
    choice,
    duration_ms,
    held_claims_value,
    host,
    not_blank,
    offsets_value,
    times_value,
    topic_names,
    whole_number,
)
from spark_groupsource.partition import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

TOPICS = "Which topics"
START = "Where to start"
END = "Where a batch read ends"
READING = "Reading"
AMOUNT = "How much in a micro-batch and in a task"
HANDOFF = "Hand-off between queries"
MEMBERSHIP = "Membership in the group"
METRICS = "Metrics"
"""The headings in docs/options.md."""


class Options(QueryOptions):
    """The validated options of a source, as returned by `parse`. Immutable."""

    ignored = IGNORED
    writes = False

    subscribe: Annotated[tuple[str, ...] | None, BeforeValidator(topic_names)] = option(
        "subscribe",
        section=TOPICS,
        meaning="The topics to read, separated by commas.",
    )

    subscribe_pattern: Annotated[str | None, BeforeValidator(parse_topic_pattern)] = option(
        "subscribePattern",
        section=TOPICS,
        meaning=(
            "A regular expression that must match the whole name of a topic. Syntax that Java and other Kafka clients interpret "
            "differently is rejected, and the error shows what to write instead (`[0-9]` for `\\d`)."
        ),
    )

    starting_offsets: Annotated[
        Literal["earliest", "latest", "committed"] | Mapping[TopicPartition, int] | None,
        PlainValidator(offsets_value("earliest", "latest", "committed")),
    ] = option(
        "startingOffsets",
        section=START,
        shown_default="streams `latest`, batch `earliest`",
        meaning=(
            '`earliest`, `latest`, or JSON with an offset for every partition, such as `{"orders":{"0":23,"1":-2}}`, where -2 is '
            "the earliest and -1 the latest offset. A batch read cannot start at `latest`. It can also start at `committed`, "
            "the group's committed offsets."
        ),
    )
    """A word such as `latest`, or offsets; see `stream_start` and `batch_start`."""

    starting_offsets_by_timestamp: Annotated[Mapping[TopicPartition, int] | None, PlainValidator(times_value)] = option(
        "startingOffsetsByTimestamp",
        section=START,
        meaning=(
            "JSON with a time for every partition, in milliseconds since 1970. Reading starts at the first record of that time "
            "or later. This option overrides `startingOffsets`."
        ),
    )

    starting_timestamp: Annotated[int | None, BeforeValidator(whole_number(0, MAX_LONG))] = option(
        "startingTimestamp",
        section=START,
        meaning=(
            "One time for all partitions, in milliseconds since 1970. This option overrides `startingOffsetsByTimestamp` and "
            "`startingOffsets`."
        ),
    )

    starting_offsets_by_timestamp_strategy: Annotated[Literal["error", "latest"], BeforeValidator(choice("error", "latest"))] = (
        option(
            "startingOffsetsByTimestampStrategy",
            "error",
            section=START,
            meaning=(
                "What happens if a partition has no record at or after the time: the query fails (`error`), or it starts at the "
                "end of the partition (`latest`)."
            ),
        )
    )

    ending_offsets: Annotated[Literal["latest"] | Mapping[TopicPartition, int], PlainValidator(offsets_value("latest"))] = option(
        "endingOffsets",
        "latest",
        section=END,
        refused_by_streams="a stream has no end",
        meaning=(
            "`latest`, the end of each partition at the first action on the DataFrame, or JSON as for `startingOffsets` (-1 is "
            "latest). The record at the offset is not read (exclusive)."
        ),
    )

    ending_offsets_by_timestamp: Annotated[Mapping[TopicPartition, int] | None, PlainValidator(times_value)] = option(
        "endingOffsetsByTimestamp",
        section=END,
        refused_by_streams="a stream has no end",
        meaning=(
            "JSON with a time for every partition, in milliseconds since 1970. Reading ends before the first record of that time "
            "or later. A partition without such a record is read to its end."
        ),
    )

    ending_timestamp: Annotated[int | None, BeforeValidator(whole_number(0, MAX_LONG))] = option(
        "endingTimestamp",
        section=END,
        refused_by_streams="a stream has no end",
        meaning=(
            "One time for all partitions, in milliseconds since 1970. This option overrides `endingOffsetsByTimestamp` and "
            "`endingOffsets`."
        ),
    )

    commit_offsets: Annotated[bool, BeforeValidator(boolean)] = option(
        "commitOffsets",
        "false",
        section=END,
        refused_by_streams="a stream commits after each micro-batch",
        meaning=(
            "Whether the offsets that were read are committed to the group, so that the next read continues there "
            "([how](guide.md#batch-reads))."
        ),
    )

    fail_on_data_loss: Annotated[bool, BeforeValidator(boolean)] = option(
        "failOnDataLoss",
        "true",
        section=READING,
        meaning=(
            "What happens if Kafka deletes records before the query has read them, or if a log [falls "
            "back](design.md#logs-that-fall-back). With `true`, the query fails. With `false`, it logs a warning and continues "
            "([what to do](operations.md#data-loss))."
        ),
    )

    max_offsets_per_trigger: Annotated[int | None, BeforeValidator(whole_number(1, MAX_LONG))] = option(
        "maxOffsetsPerTrigger",
        section=AMOUNT,
        use="streams",
        warned_of=True,
        meaning=(
            "The maximum number of offsets in one of this query's micro-batches, divided among its partitions in proportion to "
            "their lag. Other queries in the group have their own limits. A range that is "
            "[reread](handoff.md#a-query-that-does-not-come-back-heldclaims) is always read completely, even if it exceeds the "
            "limit."
        ),
    )

    min_offsets_per_trigger: Annotated[int | None, BeforeValidator(whole_number(1, MAX_LONG))] = option(
        "minOffsetsPerTrigger",
        section=AMOUNT,
        use="streams",
        warned_of=True,
        meaning=(
            "A micro-batch waits until this many offsets are available, or until `maxTriggerDelay` has passed. A run's first "
            "micro-batch does not wait, and neither does any micro-batch with `availableNow`."
        ),
    )

    max_trigger_delay_ms: Annotated[int, BeforeValidator(duration_ms)] = option(
        "maxTriggerDelay",
        "15m",
        section=AMOUNT,
        use="streams",
        warned_of=True,
        meaning="How long `minOffsetsPerTrigger` can delay a micro-batch, counted from the previous one.",
    )

    min_partitions: Annotated[int | None, BeforeValidator(whole_number(1, MAX_INT))] = option(
        "minPartitions",
        section=AMOUNT,
        meaning=(
            "The minimum number of tasks. If there are fewer partitions, several tasks share a large range. In a stream, small "
            "ranges from several partitions share a task, as long as there are at least this many tasks, and one for every 100 "
            "offsets (4 to 16)."
        ),
    )

    max_records_per_partition: Annotated[int | None, BeforeValidator(whole_number(1, MAX_LONG))] = option(
        "maxRecordsPerPartition",
        section=AMOUNT,
        meaning="The maximum number of offsets in a task. Larger ranges are split.",
    )

    include_headers: Annotated[bool, BeforeValidator(boolean)] = option(
        "includeHeaders",
        "false",
        section=READING,
        meaning=(
            "Whether to add the `headers` column. With [your own schema](guide.md#choosing-columns), add `headers` to it instead."
        ),
    )

    poll_timeout_ms: Annotated[int, BeforeValidator(whole_number(1, MAX_INT))] = option(
        "kafkaConsumer.pollTimeoutMs",
        "120000",
        section=READING,
        meaning=(
            "How long a task waits for the next record, in ms. A query waits just as long for a partition leader that does not "
            "answer."
        ),
    )

    buffer_bytes: Annotated[int, BeforeValidator(whole_number(1024 * 1024, MAX_INT))] = option(
        "kafkaConsumer.bufferBytes",
        str(BUFFER_BYTES),
        section=READING,
        only_here=True,
        meaning=(
            "The maximum number of record bytes that a task keeps in memory. A larger record, or a response that decompresses "
            "to more, can exceed the limit. The minimum is 1048576."
        ),
    )

    drain_timeout_ms: Annotated[int, BeforeValidator(duration_ms)] = option(
        "handoff.drainTimeout",
        "30s",
        section=HANDOFF,
        use="streams",
        only_here=True,
        meaning=(
            "How long the query may keep a partition after the group has asked for it back, so that the query can finish and "
            "confirm its micro-batch. After that, the query releases the partition anyway, and the range in flight remains "
            "claimed. The value must be below `kafka.max.poll.interval.ms` and `assignmentTimeout`. Make it longer than a "
            "micro-batch takes, and longer than the trigger interval if nothing [reports finished "
            "micro-batches](#checkpointlocation)."
        ),
    )

    assignment_timeout_ms: Annotated[int, BeforeValidator(duration_ms)] = option(
        "assignmentTimeout",
        "2m",
        section=MEMBERSHIP,
        use="streams",
        only_here=True,
        meaning=(
            "How long the query waits for an assignment, for brokers that return retriable errors, or for another member to "
            "take over a partition, before it fails. All waits within one call from Spark share this time."
        ),
    )

    held_claims: Annotated[Literal["hold"] | int | None, BeforeValidator(held_claims_value)] = option(
        "heldClaims",
        section=HANDOFF,
        use="streams",
        only_here=True,
        meaning=(
            "What this query does with ranges that another query claimed but did not confirm before it stopped. With `hold`, "
            "they wait until that query is restarted (exactly once). With `reread`, this query reads them as soon as the other "
            "query is dead, and with `reread-after 10m`, once it has been dead for 10 minutes (both at least once). A query "
            "counts as dead when it no longer owns any partition. If the option is not set, the default is `hold`, and a new "
            "query that leaves such ranges unread logs a warning when it starts."
        ),
    )
    """`hold`, or how long to wait before reading the ranges, in ms; see `held_claims_choice`."""

    checkpoint_location: Annotated[str | None, BeforeValidator(not_blank)] = option(
        "checkpointLocation",
        section=HANDOFF,
        use="streams",
        only_here=True,
        warned_of=True,
        private=True,
        meaning=(
            "The same string as the writer's `checkpointLocation`. The driver reads this location to see whether Spark has "
            "finished a micro-batch."
        ),
    )

    metrics_port: Annotated[int | None, BeforeValidator(whole_number(0, 65535))] = option(
        "metrics.port",
        section=METRICS,
        use="streams",
        only_here=True,
        warned_of=True,
        meaning="The port on which the driver serves metrics to Prometheus, or 0 for any free port.",
    )

    metrics_host: Annotated[str, BeforeValidator(host)] = option(
        "metrics.host",
        "127.0.0.1",
        section=METRICS,
        use="streams",
        only_here=True,
        warned_of=True,
        meaning="The address on which the driver serves metrics.",
    )

    exclude_internal_topics: Annotated[bool, BeforeValidator(boolean)] = option(
        "kafka.exclude.internal.topics",
        "true",
        section=TOPICS,
        meaning="Whether `subscribePattern` ignores Kafka's own topics, such as `__consumer_offsets`.",
    )

    def _conflicts(self, use: Literal["stream", "batch"] | None) -> Iterator[str]:
        for name, limit_ms, reason in (
            ("kafka.max.poll.interval.ms", self.max_poll_interval_ms, "after which the group removes the member"),
            ("assignmentTimeout", self.assignment_timeout_ms, "because new members wait while others drain"),
        ):
            if self.drain_timeout_ms >= limit_ms:
                drain = f"handoff.drainTimeout ({self.drain_timeout_ms} ms)"
                yield f"{drain} must be below {name} ({limit_ms} ms), {reason}: lower one or raise the other."
        if (self.min_offsets_per_trigger or 0) > (self.max_offsets_per_trigger or MAX_LONG):
            yield (
                f"minOffsetsPerTrigger ({self.min_offsets_per_trigger}) is higher than maxOffsetsPerTrigger "
                f"({self.max_offsets_per_trigger}): lower one or raise the other."
            )
        for name in ("starting_offsets", "starting_offsets_by_timestamp", "ending_offsets", "ending_offsets_by_timestamp"):
            written = getattr(self, name)
            if isinstance(written, Mapping) and (self.subscribe or self.subscribe_pattern):
                unsubscribed = sorted({partition.topic for partition in written if not self.matches(partition.topic)})
                if unsubscribed:
                    topics = ", ".join(unsubscribed)
                    yield (
                        f"{_alias(name)} names topics that the query does not subscribe to: {topics}. Remove these topics from "
                        "the option, or subscribe to them."
                    )
        if self.subscribe_pattern and self.group_protocol == "consumer" and self.exclude_internal_topics:
            internal = [topic for topic in INTERNAL_TOPICS if re.fullmatch(self.subscribe_pattern, topic)]
            if internal:
                yield (
                    f"subscribePattern = {self.subscribe_pattern!r} matches Kafka's own {', '.join(internal)}, which brokers do "
                    "not exclude with kafka.group.protocol=consumer. Write a pattern that does not match them, for example one "
                    "that begins with [^_], or set kafka.exclude.internal.topics=false to read them."
                )
        if use is not None:
            yield from self._stream_problems() if use == "stream" else self._batch_problems()

    def _stream_problems(self) -> Iterator[str]:
        for name, about in DESCRIBED.items():
            if about.refused_by_streams and self._gives(name):
                yield f"{name} is for spark.read only: {about.refused_by_streams}."
        if self.starting_offsets == "committed":
            yield (
                "startingOffsets = 'committed' is for spark.read only, because a stream always continues at the committed "
                "offsets. For partitions without committed offsets, use earliest, latest or offsets."
            )
        if self.metrics_port is None and self._gives("metrics.host"):
            yield "metrics.host has no effect without metrics.port: set metrics.port, too (0 for any free port)."
        if self.metrics_port is not None and importlib.util.find_spec("prometheus_client") is None:
            yield (
                f"metrics.port needs the prometheus-client package on the driver's machine: {with_extra('metrics')}, or remove "
                "the option."
            )

    def _batch_problems(self) -> Iterator[str]:
        start, end = self.batch_start, self.batch_end
        if start == "latest" or (isinstance(start, ByOffset) and LATEST in start.offsets.values()):
            yield "startingOffsets: a batch read cannot start at latest. Use earliest, committed or offsets, or set a time."
        if isinstance(end, ByOffset) and EARLIEST in end.offsets.values():
            yield "endingOffsets: a batch read cannot end at earliest (-2). Use latest or offsets, or set a time."
        yield from start_after_end(start, end)
        if self.commit_offsets and start != "committed":
            yield (
                "commitOffsets=true needs startingOffsets=committed: with any other start, records before the new committed "
                "offset may be unread."
            )
        if self.commit_offsets and (self.min_partitions or self.max_records_per_partition):
            yield (
                "commitOffsets=true cannot be combined with minPartitions or maxRecordsPerPartition, because the task that "
                "commits a partition's offset must have read all of the partition: remove those two options."
            )

    @property
    def stream_start(self) -> Position:
        """Where a stream starts in partitions without a committed offset."""
        return self._starting("latest")

    @property
    def batch_start(self) -> Position | Literal["committed"]:
        """Where a batch read starts."""
        start = self._starting("earliest")
        return "committed" if start == "earliest" and self.starting_offsets == "committed" else start

    @property
    def batch_end(self) -> Position:
        """Where a batch read ends (exclusive)."""
        if self.ending_timestamp is not None:
            return ByTime("endingTimestamp", self.ending_timestamp, or_latest=True)
        if self.ending_offsets_by_timestamp is not None:
            return ByTime("endingOffsetsByTimestamp", self.ending_offsets_by_timestamp, or_latest=True)
        return self.ending_offsets if isinstance(self.ending_offsets, str) else ByOffset("endingOffsets", self.ending_offsets)

    def _starting(self, default: Literal["earliest", "latest"]) -> Position:
        or_latest = self.starting_offsets_by_timestamp_strategy == "latest"
        if self.starting_timestamp is not None:
            return ByTime("startingTimestamp", self.starting_timestamp, or_latest)
        if self.starting_offsets_by_timestamp is not None:
            return ByTime("startingOffsetsByTimestamp", self.starting_offsets_by_timestamp, or_latest)
        if isinstance(self.starting_offsets, Mapping):
            return ByOffset("startingOffsets", self.starting_offsets)
        return self.starting_offsets if self.starting_offsets in ("earliest", "latest") else default

    @property
    def without_effect_on_a_batch(self) -> list[str]:
        """The options that the user set although they have no effect on a batch read."""
        return [name for name, about in DESCRIBED.items() if about.warned_of and self._gives(name)]

    def _gives(self, alias: str) -> bool:
        return any(_alias(name) == alias for name in self.model_fields_set)

    @property
    def group_id(self) -> str:
        """The consumer group (`kafka.group.id`)."""
        return self.kafka["group.id"]

    @property
    def group_instance_id(self) -> str | None:
        """The static member's instance id (`kafka.group.instance.id`, KIP-345)."""
        return self.kafka.get("group.instance.id")

    @property
    def query_name(self) -> str:
        """The user's name for the query: its `kafka.client.id`, or else the static member's instance id, or else empty."""
        return self.kafka.get("client.id") or self.group_instance_id or ""

    @property
    def group_protocol(self) -> Literal["classic", "consumer"]:
        """The rebalance protocol: `classic`, or `consumer` for KIP-848."""
        return "consumer" if self.kafka.get("group.protocol") == "consumer" else "classic"

    @property
    def assignment_strategy(self) -> str:
        """The member's assignors (classic) or the broker's assignor (KIP-848), where `server` means that the broker chooses."""
        if self.group_protocol == "consumer":
            return self.kafka.get("group.remote.assignor", "server")
        return self.member_settings()["partition.assignment.strategy"]

    @property
    def read_committed(self) -> bool:
        """Whether the query skips records from open and aborted transactions (`kafka.isolation.level`)."""
        return self.client_settings()["isolation.level"] == "read_committed"

    @property
    def max_poll_interval_ms(self) -> int:
        """The maximum time between two polls by the member, in ms."""
        return int(self.kafka.get("max.poll.interval.ms", EVERY_MEMBER["max.poll.interval.ms"]))

    def held_claims_choice(self) -> HeldClaims:
        """Return what the user wants to happen to ranges that are held for other streams."""
        if self.held_claims is None:
            return HeldClaims(chosen=False)
        return HOLD if self.held_claims == "hold" else HeldClaims(reread_after_s=self.held_claims / 1000)

    def client_settings(self) -> dict[str, str]:
        """Return the settings for a client that only sends requests. They contain secrets."""
        return client_settings(self.kafka)

    def member_settings(self) -> dict[str, str]:
        """Return the settings for the driver's group member. They contain secrets."""
        leaves_out = self.subscribe_pattern and self.exclude_internal_topics and self.group_protocol == "classic"
        return member_settings(self.kafka, INTERNAL_TOPICS if leaves_out else ())

    def fetch_settings(self, schema: pa.Schema | None = None) -> FetchSettings:
        """Return the settings for tasks that read the columns of `schema` or Spark's own columns. They contain secrets."""
        from spark_groupsource.fetch.arrow_schema import arrow_schema

        return FetchSettings(
            client=consumer_settings(self.kafka, self.buffer_bytes),
            schema=schema or arrow_schema(self.include_headers),
            fail_on_data_loss=self.fail_on_data_loss,
            poll_timeout_ms=self.poll_timeout_ms,
            buffer_bytes=self.buffer_bytes,
        )

    def subscription(self) -> list[str]:
        """Return the argument for `Consumer.subscribe`: topics, or one pattern."""
        return [f"^({self.subscribe_pattern})$"] if self.subscribe_pattern else list(self.subscribe or ())

    def matches(self, topic: str) -> bool:
        """Return whether the query subscribes to this topic."""
        if self.subscribe_pattern is None:
            return topic in (self.subscribe or ())
        if self.exclude_internal_topics and topic in INTERNAL_TOPICS:
            return False
        return re.fullmatch(self.subscribe_pattern, topic) is not None


DESCRIBED = described(Options)
"""The descriptions of all options except `kafka.*`, by option name."""


def _alias(name: str) -> str:
    return Options.model_fields[name].alias or name
