"""Checks whether a query may write to its topic: the ACLs, the batch size, the groups and the transactions.

It writes no records. A step that the brokers refuse raises a GroupKafkaError.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property

from confluent_kafka import KafkaError, KafkaException, Producer

from spark_groupsource.brokers.client import librdkafka_log, make_client
from spark_groupsource.brokers.group_admin_process import GroupAdminProcess
from spark_groupsource.brokers.topics import Topics
from spark_groupsource.cli.check.findings import Finding, error, judge_visibility, lacks, ok, warning
from spark_groupsource.cli.open_transactions import topics_by_name, visibility
from spark_groupsource.cli.render import count
from spark_groupsource.errors import GroupKafkaError, NotAuthorized
from spark_groupsource.partition import TopicPartition
from spark_groupsource.sink.failures import failure
from spark_groupsource.sink.settings import SinkSettings
from spark_groupsource.sink.topics import SETTING, topic_limits, with_batch_size
from spark_groupsource.timeouts import CHECK_STEP_S

_GROUPS_BEGIN = (
    "The names of the sink's groups and transactional ids begin with transactionalIdPrefix, so grant the ACL for this prefix."
)


@dataclass
class Sink:
    """A sink's options, and the topic that the first step found."""

    settings: SinkSettings
    topic: str | None = None
    """The topic, if the user may write to it. `describe_topic` sets it."""
    partitions: Collection[TopicPartition] = ()
    """The topic's partitions."""

    @cached_property
    def topics(self) -> Topics:
        """The brokers' topics.

        Raises:
            OptionError: See `Topics`.
            AuthenticationFailed: See `Topics`.
        """
        return topics_by_name(self.settings.requests)

    @property
    def name(self) -> str:
        """A name with the sink's prefix that no task uses, for a group and a transactional id."""
        return f"{self.settings.prefix}-check"


def describe_topic(sink: Sink) -> Iterator[Finding]:
    """Report whether the topic exists and the user may write to it. If so, add the topic to `sink`."""
    name = sink.settings.topic
    if name is None:
        yield ok("topics", "the topic option is not set, so each row names its topic. No topic was checked")
        return
    found = sink.topics.describe([name])[name]
    needed = ["WRITE", "READ"] if sink.settings.exactly_once else ["WRITE"]
    if isinstance(found, NotAuthorized):  # either ACL would let the user describe the topic, so both are missing
        yield _needs(name, needed)
    elif isinstance(found, GroupKafkaError):
        yield error("topics", str(found))
    elif missing := [operation for operation in needed if lacks(operation, found.operations)]:
        yield _needs(name, missing)
    else:
        sink.topic, sink.partitions = name, found.partitions
        may = "may be written to" if found.operations is not None else "the broker does not report whether it may be written to"
        yield ok("topics", f"{name} ({count(len(found.partitions), 'partition')}): found, and {may}")


def _needs(topic: str, missing: list[str]) -> Finding:
    reason = " The sink commits offsets for this topic, which requires READ." if missing == ["READ"] else ""
    return error("topics", f"{topic}: the user needs the {' and '.join(missing)} ACL on the topic.{reason}")


def compare_batch_size(sink: Sink) -> Iterator[Finding]:
    """Report how large batches can get, because librdkafka does not split a batch that is too large for the topic."""
    topic, producer = sink.topic, sink.settings.producer
    if topic is None:
        return
    limit = topic_limits(producer, [topic])[topic]
    size = int(with_batch_size(producer, [topic])[SETTING])
    if limit is not None:
        row = min(limit, int(producer["message.max.bytes"]))
        batches = f"max.message.bytes is {limit}, so batches of rows are limited to {size} bytes"
        yield ok("batches", f"{topic}: {batches}. A row can be up to about {row} bytes long")
        return
    text = (
        f"{topic}: its max.message.bytes is unknown, because reading it requires the DESCRIBE_CONFIGS ACL on the topic. So "
        f"batches of rows are limited to {size} bytes"
    )
    if SETTING in producer:
        yield warning(
            "batches",
            f"{text} (kafka.batch.size). If the topic's limit is lower, the brokers reject rows and the query fails. Grant the "
            "ACL, or set kafka.batch.size to the topic's limit.",
        )
    else:
        yield warning(
            "batches",
            f"{text}, and rows of 1 KB are written two to four times slower than in large batches. Grant the ACL, or set "
            "kafka.batch.size to the topic's limit.",
        )


def ask_for_groups(sink: Sink) -> Iterator[Finding]:
    """Report whether the sink may commit offsets to its groups."""
    try:
        with GroupAdminProcess(sink.settings.requests) as groups:
            allowed = groups.operations(sink.name)
    except GroupKafkaError as refused:
        yield error("groups", f"{refused} {_GROUPS_BEGIN}")
        return
    if lacks("READ", allowed):
        yield error("groups", f"{sink.name}: the user needs the READ ACL on the group. {_GROUPS_BEGIN}")
        return
    may = "offsets may be committed" if allowed is not None else "the broker does not report whether offsets may be committed"
    yield ok("groups", f"{sink.name}: {may}")


def take_transactional_id(sink: Sink) -> Iterator[Finding]:
    """Report whether the sink may write in transactions that last as long as its options allow."""
    errors: dict[int, KafkaError] = {}
    settings = {**sink.settings.producer, "transactional.id": sink.name, "delivery.report.only.error": True}
    try:
        producer = make_client(Producer, settings, lambda reported: errors.__setitem__(reported.code(), reported), librdkafka_log)
        producer.init_transactions(CHECK_STEP_S)
    except KafkaException as refused:
        raise failure(refused.args[0], f"acquiring the transactional id {sink.name}", errors) from None
    timeout = settings["transaction.timeout.ms"]
    yield ok("transaction", f"{sink.name}: may be used, and a transaction may stay open for {timeout} ms")


def find_transactions_in_topic(sink: Sink) -> Iterator[Finding]:
    """Report how many of the topic's records are hidden by open transactions."""
    topic = sink.topic
    if topic is None:
        return
    yield judge_visibility(topic, visibility(sink.settings.requests, sink.partitions), topic)
