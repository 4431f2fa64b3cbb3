"""`groupkafka check --sink`: the options of a sink, tried against its brokers without writing a record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException, Producer

from spark_groupsource.brokers.client import librdkafka_log, make_client
from spark_groupsource.brokers.group_admin_process import GroupAdminProcess
from spark_groupsource.brokers.topics import Topics
from spark_groupsource.cli.access import NO_SUBSCRIPTION, lacks, reach, unreadable_files
from spark_groupsource.cli.findings import Finding, Level
from spark_groupsource.cli.openers import openers
from spark_groupsource.cli.visibility import visibility_of
from spark_groupsource.errors import GroupKafkaError, NotAuthorized, OptionError
from spark_groupsource.options.properties_file import read_properties
from spark_groupsource.options.sink_model import SinkOptions
from spark_groupsource.partition import listed
from spark_groupsource.sink.batch_size import SETTING, topic_limits, with_batch_size
from spark_groupsource.sink.failures import failure
from spark_groupsource.sink.settings import SinkSettings
from spark_groupsource.timeouts import CHECK_STEP_S


def findings_of_sink(path: Path) -> Iterator[Finding]:
    """Yield each finding as soon as it is known."""
    try:
        options = SinkOptions.parse(read_properties(path), "stream")
    except OptionError as wrong:
        yield from (Finding(Level.ERROR, "options", problem) for problem in wrong.problems)
        return
    settings = options.sink_settings("stream")
    guarantee = "exactly-once" if settings.exactly_once else "at-least-once"
    yield Finding(Level.OK, "options", f"{path}: all options are known and fit together; deliveryGuarantee={guarantee}")
    if missing := list(unreadable_files(options.kafka)):
        yield from missing
        return
    topics, found = reach(
        options.kafka, lambda: Topics(settings.requests, NO_SUBSCRIPTION, read_committed=False, patience_s=CHECK_STEP_S)
    )
    yield from found
    if topics is None:
        return
    topic = _of_topic(settings, topics)
    yield topic
    if settings.topic is not None and topic.level is Level.OK:
        yield _of_batches(settings, settings.topic)
    if settings.exactly_once:
        yield _of_groups(settings)
        yield _of_transactions(settings)
        if settings.topic is not None and topic.level is Level.OK:
            yield _of_isolation(settings, settings.topic)


def _of_topic(settings: SinkSettings, topics: Topics) -> Finding:
    """Return whether the topic is there and may be written to."""
    if settings.topic is None:
        return Finding(Level.OK, "topics", "there is no option topic: the column topic names one for each row. None was tried")
    found = topics.describe([settings.topic])[settings.topic]
    needed = ["WRITE", "READ"] if settings.exactly_once else ["WRITE"]
    if isinstance(found, NotAuthorized):  # either of them would let the user describe the topic
        return _needs(settings.topic, needed)
    if isinstance(found, GroupKafkaError):
        return Finding(Level.ERROR, "topics", str(found))
    if missing := [operation for operation in needed if lacks(operation, found.operations)]:
        return _needs(settings.topic, missing)
    may = "may be written to" if found.operations is not None else "the broker does not say whether it may be written to"
    return Finding(Level.OK, "topics", f"{settings.topic} ({len(found.partitions)} partitions): found, and {may}")


def _needs(topic: str, missing: list[str]) -> Finding:
    why = " A token is an offset of this topic, which takes READ." if missing == ["READ"] else ""
    return Finding(Level.ERROR, "topics", f"{topic}: the user needs the ACL {' and '.join(missing)} on the topic.{why}")


def _of_batches(settings: SinkSettings, topic: str) -> Finding:
    """Return how large the batches of rows are: librdkafka does not split one that is too large for the topic."""
    limit = topic_limits(settings.producer, [topic])[topic]
    size = int(with_batch_size(settings.producer, [topic])[SETTING])
    if limit is None:
        text = (
            f"{topic}: the brokers do not say its max.message.bytes, which takes the ACL DESCRIBE_CONFIGS on the topic. So "
            f"batches of rows have at most {size} bytes"
        )
        if SETTING in settings.producer:
            return Finding(Level.WARNING, "batches", f"{text} (kafka.batch.size). If the topic takes less, rows are refused.")
        return Finding(
            Level.WARNING,
            "batches",
            f"{text}, and rows of 1 KB are written two to four times slower than in large ones. Grant the ACL, or set "
            "kafka.batch.size to the topic's limit.",
        )
    row = min(limit, int(settings.producer["message.max.bytes"]))
    return Finding(
        Level.OK,
        "batches",
        f"{topic}: max.message.bytes is {limit}, so batches of rows have at most {size} bytes. A row may have about {row}",
    )


def _of_groups(settings: SinkSettings) -> Finding:
    """Return whether the sink may keep its tokens."""
    group = _name(settings)
    try:
        with GroupAdminProcess(settings.requests) as look:
            allowed = look.operations(group)
    except GroupKafkaError as refused:
        return Finding(Level.ERROR, "groups", f"{refused} {_GROUPS_BEGIN}")
    if lacks("READ", allowed):
        return Finding(Level.ERROR, "groups", f"{group}: the user needs the ACL READ on the group. {_GROUPS_BEGIN}")
    may = "offsets may be committed" if allowed is not None else "the broker does not say whether offsets may be committed"
    return Finding(Level.OK, "groups", f"{group}: {may}")


_GROUPS_BEGIN = "The names of the sink's groups and transactional ids begin with transactionalIdPrefix: grant it as a prefix."


def _of_transactions(settings: SinkSettings) -> Finding:
    """Return whether the sink may write in transactions, as long as its options say."""
    name = _name(settings)
    errors: dict[int, KafkaError] = {}
    try:
        producer = make_client(
            Producer,
            {**settings.producer, "transactional.id": name, "delivery.report.only.error": True},
            lambda error: errors.__setitem__(error.code(), error),
            librdkafka_log,
        )
        producer.init_transactions(CHECK_STEP_S)
    except KafkaException as refused:
        found = failure(refused.args[0], f"taking the transactional id {name}", errors)
        return Finding(Level.ERROR, "transaction", str(found))
    except GroupKafkaError as refused:
        return Finding(Level.ERROR, "transaction", str(refused))
    timeout = settings.producer["transaction.timeout.ms"]
    return Finding(Level.OK, "transaction", f"{name}: may be used, and a transaction may be open for {timeout} ms")


def _of_isolation(settings: SinkSettings, topic: str) -> Finding:
    """Return what open transactions hold back in the topic, and whose they may be."""
    try:
        seen = visibility_of(settings.requests, topic)
        held = [one for one in seen if one.hidden]
        found = None
        if held:
            with GroupAdminProcess(settings.requests) as look:
                found = openers(look, topic, None)
    except GroupKafkaError as refused:
        return Finding(Level.ERROR, "isolation", str(refused))
    if found is not None:
        ids = listed(one.transactional_id for one in found.candidates if one.topic == topic)
        whose = f"These tasks have left a mark that they may have one: {ids}." if ids else "No task of a sink has left a mark."
        return Finding(
            Level.WARNING,
            "isolation",
            f"{topic}: {sum(one.hidden or 0 for one in held)} offsets in {listed(one.partition for one in held)} are written and "
            f"not visible yet to readers of committed records, because of open transactions. {whose} Who has them, and what ends "
            f"them: groupkafka transactions --topic {topic}.",
        )
    if silent := [one.partition for one in seen if one.hidden is None]:
        return Finding(
            Level.WARNING,
            "isolation",
            f"{topic}: the leaders of {listed(silent)} did not say whether open transactions block reading",
        )
    return Finding(Level.OK, "isolation", f"{topic}: no open transaction holds anything back")


def _name(settings: SinkSettings) -> str:
    """Return a name with the sink's prefix that no task has."""
    return f"{settings.prefix}-check"
