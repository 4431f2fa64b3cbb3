"""`groupkafka check`: an options file, tried against its brokers without joining the group.

Each step needs the steps before it. The check ends early if a step fails that the rest depends on. Each request waits about ten
seconds at most.

Nothing is written, and the group's members are not disturbed. A request to join would start a rebalance. So
`findings.of_assignor` decides from the coordinator's description whether the members would accept another one.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue

import click
from confluent_kafka import Consumer, KafkaError, libversion
from rich.console import Console
from rich.text import Text

from spark_groupsource.brokers.broker_errors import explain
from spark_groupsource.brokers.broker_settings import settings_of_a_broker
from spark_groupsource.brokers.client import make_client
from spark_groupsource.brokers.group_admin_process import GroupAdminProcess
from spark_groupsource.brokers.group_view import GroupView
from spark_groupsource.brokers.login_trouble import MISSING_ACL
from spark_groupsource.brokers.topics import TopicDescription, Topics
from spark_groupsource.checkpoint.files import without_password
from spark_groupsource.cli.access import lacks, reach, unreadable_files
from spark_groupsource.cli.as_json import Json, json_text
from spark_groupsource.cli.check_sink import findings_of_sink
from spark_groupsource.cli.checkpoint_files import NewestBatch, newest_batch
from spark_groupsource.cli.findings import (
    Finding,
    Known,
    Level,
    of_assignor,
    of_claims,
    of_classic_protocol,
    of_formats,
    of_instance_id,
    of_start,
)
from spark_groupsource.cli.habits import (
    RETENTION,
    of_checkpoint,
    of_members,
    of_no_checkpoint,
    of_reader,
    of_retention,
    of_session,
    of_unreadable_checkpoint,
)
from spark_groupsource.cli.render import console_for, printable
from spark_groupsource.cli.shared_options import json_option
from spark_groupsource.cli.visibility import all_ends, visibility
from spark_groupsource.errors import (
    CheckpointUnreadable,
    GroupKafkaError,
    GroupNotFound,
    OffsetError,
    OptionError,
)
from spark_groupsource.fetch.choice import fetch, installed_reader
from spark_groupsource.fetch.contract import FetchRange
from spark_groupsource.handoff.losses import LogState
from spark_groupsource.kafka_settings.tables import CLASSIC_ONLY
from spark_groupsource.options.client_settings import member_settings
from spark_groupsource.options.model import Options
from spark_groupsource.options.properties_file import read_properties
from spark_groupsource.options.start_and_end import offsets_at, refuse_unknown
from spark_groupsource.partition import TopicPartition, listed
from spark_groupsource.patience import Deadline
from spark_groupsource.timeouts import CHECK_STEP_S

LAST_OFFSETS = 100
"""The number of offsets at a partition's end among which records are tried."""

REFUSED_ASSIGNOR = "groupkafka-check"
"""An assignor that no broker has. A broker with KIP-848 refuses a heartbeat with it before it looks at the group."""

TOO_OLD = frozenset({KafkaError.UNSUPPORTED_VERSION, KafkaError._UNSUPPORTED_FEATURE})
"""Errors of brokers that do not have KIP-848. librdkafka may hide the code behind `_FATAL`, but quotes the text."""

_refusals_log = logging.getLogger("spark_groupsource.librdkafka.refusals")
"""Shows nothing. The refusal that is asked for is a fatal error for librdkafka, and it would log that."""
_refusals_log.disabled = True

_STYLES = {Level.OK: "green", Level.WARNING: "bold yellow", Level.ERROR: "bold red"}


@click.command()
@click.option(
    "--conf",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The source's options as a Java properties file: kafka.group.id=orders, one option on each line.",
)
@click.option("--sink", "of_sink", is_flag=True, help="The file has the options of the sink (writeStream), not of the source.")
@json_option
def check(conf: Path, of_sink: bool, as_json: bool) -> None:
    """Try an options file as a query would use it. Report what is wrong and what to do.

    It checks the options, the brokers, TLS and login, the topics, the group and the ACLs. It checks that the group's members
    would accept the query: its assignor, and the instance id of a static member. It reports whether the brokers have the group
    protocol of KIP-848, where a query with a new checkpoint would start, and what other queries have claimed and not confirmed.
    It reads some records.

    It also checks habits of production: the session timeout against the brokers' bounds, how long the group's commits are kept,
    whether there are partitions for all members, which reader this machine has, and whether the checkpoint can be read if the
    options have the writer's checkpointLocation.

    It joins no group and writes nothing. The exit code is 1 if there is an error, and 0 if there are only warnings. With an
    error the query cannot run.

    With --sink it checks the options of writeStream.format("groupkafka"): the brokers, TLS and login, the topic, and the ACLs of
    the guarantee on the topic, the sink's groups and its transactional ids. It writes no record, but it takes a transactional
    id that no task has (the prefix and -check), because nothing else shows whether that is allowed.

    \b
    Example of a file:
      kafka.bootstrap.servers=localhost:9092
      kafka.group.id=orders
      subscribe=orders

    \b
    Example:
      groupkafka check --conf orders.properties
    """
    console = console_for(sys.stdout)
    found = []
    for finding in findings_of_sink(conf) if of_sink else findings_of(conf):
        found.append(finding)
        if not as_json:
            print_finding(finding, console)
    if as_json:
        click.echo(json_text(json_shape(str(conf), found)))
    if any(finding.level is Level.ERROR for finding in found):
        sys.exit(1)


def json_shape(file: str, found: Sequence[Finding]) -> Json:
    """`groupkafka check --json`; the findings in the order of the steps."""
    return {
        "file": file,
        "errors": sum(finding.level is Level.ERROR for finding in found),
        "warnings": sum(finding.level is Level.WARNING for finding in found),
        "findings": [{"level": finding.level.value, "check": finding.check, "text": finding.text} for finding in found],
    }


def print_finding(finding: Finding, console: Console) -> None:
    """Print one line of `groupkafka check`."""
    text = Text(f"{finding.level.value:<8} ", style=_STYLES[finding.level] if console.is_terminal else "")
    console.print(text.append(Text(f"{finding.check:<11} {printable(finding.text)}", style="default")))


def findings_of(path: Path) -> Iterator[Finding]:
    """Yield each finding as soon as it is known."""
    try:
        options = Options.parse(read_properties(path), "stream")
    except OptionError as wrong:
        yield from (Finding(Level.ERROR, "options", problem) for problem in wrong.problems)
        return
    yield Finding(Level.OK, "options", f"{path}: all options are known and fit together")
    if missing := list(unreadable_files(options.kafka)):
        yield from missing
        return
    topics, found = reach(options.kafka, lambda: _topics(options, read_committed=options.read_committed))
    yield from found
    if topics is not None:
        yield from _with_brokers(options, topics)


def _topics(options: Options, *, read_committed: bool) -> Topics:
    return Topics(options.client_settings(), options, read_committed=read_committed, patience_s=CHECK_STEP_S)


def _with_brokers(options: Options, topics: Topics) -> Iterator[Finding]:
    partitions: list[TopicPartition] = []
    yield from _of_topics(options, topics, partitions)
    view: GroupView | None = None
    allowed: frozenset[str] | None = None
    with GroupAdminProcess(options.client_settings()) as look:
        try:
            allowed = look.operations(options.group_id)
            view = look.describe(options.group_id)
        except GroupNotFound:
            yield _of_group(options, allowed, "the group does not exist yet; the query creates it")
        except GroupKafkaError as refused:
            yield Finding(Level.ERROR, "group", str(refused))
            return
        else:
            members = f"{len(view.members)} {'member' if len(view.members) == 1 else 'members'}"
            commits = sum(one.commit is not None for one in view.partitions)
            yield _of_group(options, allowed, f"{view.state}, {members}, commits of {commits} partitions")
    if (protocol := _of_protocol(options)) is not None:
        yield protocol
    yield of_assignor(options, view)
    if (instance := of_instance_id(options, view)) is not None:
        yield instance
    if (habit := of_members(options, view, partitions)) is not None:
        yield habit
    yield from _of_settings(options, topics, partitions, view)
    yield of_reader(libversion()[0], installed_reader())
    yield _of_checkpoint(options)
    if partitions:
        yield from _of_records(options, topics, partitions, view)
    if (formats := of_formats(options, view)) is not None:
        yield formats
    yield of_claims(options, view)


def _of_topics(options: Options, topics: Topics, partitions: list[TopicPartition]) -> Iterator[Finding]:
    """Yield the findings on the topics. Add the partitions of those that can be read to `partitions`."""
    try:
        names = options.subscribe or sorted({partition.topic for partition in topics.partitions()})
    except GroupKafkaError as refused:
        yield Finding(Level.ERROR, "topics", str(refused))
        return
    if not names:
        yield Finding(
            Level.WARNING,
            "topics",
            f"subscribePattern={options.subscribe_pattern} matches no topic that this user may describe (ACL DESCRIBE). The "
            "query would read nothing and wait for one. Check the pattern, which must match the whole name, and the ACLs.",
        )
        return
    readable = []
    for name, found in topics.describe(names).items():
        if isinstance(found, GroupKafkaError):
            yield Finding(Level.ERROR, "topics", str(found))
        elif lacks("READ", found.operations):
            text = f"{name}: this user may describe it, but not read it. {MISSING_ACL[KafkaError.TOPIC_AUTHORIZATION_FAILED]}"
            yield Finding(Level.ERROR, "topics", text)
        else:
            readable.append((name, found))
            partitions += found.partitions
    if readable:
        yield Finding(Level.OK, "topics", _topics_said(readable))


def _topics_said(readable: Sequence[tuple[str, TopicDescription]]) -> str:
    known = all(look.operations is not None for _, look in readable)
    counts = listed(f"{name} ({len(look.partitions)} partitions)" for name, look in readable)
    may = "may be read" if known else "may be described; the broker does not say whether they may be read"
    return f"{counts}: found, and {may}"


def _of_group(options: Options, allowed: frozenset[str] | None, state: str) -> Finding:
    if lacks("READ", allowed):
        needed = MISSING_ACL[KafkaError.GROUP_AUTHORIZATION_FAILED]
        return Finding(Level.ERROR, "group", f"{options.group_id}: this user may describe it, but not join it. {needed}")
    may = "joining it is allowed" if allowed is not None else "the broker does not say whether joining it is allowed"
    return Finding(Level.OK, "group", f"{options.group_id}: {state}; {may}")


def _of_protocol(options: Options) -> Finding | None:
    """Return whether the brokers have KIP-848; `None` if that is not known, and the options do not need it."""
    error = _refusal_of_new_protocol(options)
    supported = _is_one_of(error, {KafkaError.UNSUPPORTED_ASSIGNOR})
    too_old = _is_one_of(error, TOO_OLD)
    if options.group_protocol == "classic":
        return of_classic_protocol(options, supported=supported) if supported or too_old else None
    if supported:
        return Finding(Level.OK, "protocol", "the brokers have kafka.group.protocol=consumer (KIP-848)")
    if error is None:
        text = f"the coordinator did not say within {CHECK_STEP_S:.0f} s whether it has kafka.group.protocol=consumer (KIP-848)."
        advice = "Brokers have it from 4.0 on. Run this check again, or set it to classic, which works everywhere."
        return Finding(Level.WARNING, "protocol", f"{text} {advice}")
    if too_old:
        text = "the brokers do not have kafka.group.protocol=consumer (KIP-848), which Kafka has from 4.0 on. Set it to classic."
        return Finding(Level.ERROR, "protocol", text)
    return Finding(Level.ERROR, "protocol", str(explain(error, "asking for kafka.group.protocol=consumer")))


def _is_one_of(error: KafkaError | None, codes: Collection[int]) -> bool:
    return error is not None and (error.code() in codes or any(KafkaError(code).str() in error.str() for code in codes))


def _refusal_of_new_protocol(options: Options) -> KafkaError | None:
    """Return what the brokers say to a request to join that those with KIP-848 refuse; `None` if they say nothing in time."""
    errors: list[KafkaError] = []
    kafka = {name: value for name, value in options.kafka.items() if name not in {*CLASSIC_ONLY, "group.instance.id"}}
    settings = {
        **member_settings({**kafka, "group.protocol": "consumer"}),
        "group.remote.assignor": REFUSED_ASSIGNOR,
        # Subscribing must create no topic, whatever the options say: nothing is written.
        "allow.auto.create.topics": "false",
    }
    with closing(make_client(Consumer, settings, errors.append, _refusals_log)) as consumer:
        consumer.subscribe(options.subscription())
        deadline = Deadline(CHECK_STEP_S)
        error: KafkaError | None = None
        while error is None and not deadline.over:
            message = consumer.poll(0.1)
            error = message.error() if message is not None else next((one for one in errors if one.fatal()), None)
    return error


def _of_settings(
    options: Options, topics: Topics, partitions: Sequence[TopicPartition], view: GroupView | None
) -> Iterator[Finding]:
    """Yield what the brokers' settings mean for the query. Without the right to read them it can run all the same."""
    try:
        broker = settings_of_a_broker(options.client_settings())
    except GroupKafkaError as refused:
        text = f"the brokers' bounds of kafka.session.timeout.ms, and {RETENTION}, were not checked. {refused}"
        yield Finding(Level.OK, "settings", f"{text} The check needs the ACL DESCRIBE_CONFIGS on the cluster; a query does not.")
        return
    yield of_session(options, broker)
    if RETENTION not in broker:
        return
    minutes, now_s = int(broker[RETENTION]), time.time()
    since_ms = max(0, round((now_s - minutes * 60) * 1000))
    stopped = view is not None and not view.members
    try:
        first = topics.at_times(dict.fromkeys(partitions, since_ms)) if stopped else {}
    except GroupKafkaError:
        return  # `_of_records` asks the same leaders, and reports it
    if (retention := of_retention(options, view, minutes, now_s, first)) is not None:
        yield retention


def _of_checkpoint(options: Options) -> Finding:
    """Return what is found at the reader's `checkpointLocation`. It is given up after CHECK_STEP_S."""
    location = options.checkpoint_location
    if location is None:
        return of_no_checkpoint()
    answers: SimpleQueue[NewestBatch | OffsetError | None] = SimpleQueue()

    def look() -> None:
        try:
            answers.put(newest_batch(location))
        except CheckpointUnreadable as unreadable:
            answers.put(unreadable)
        except OffsetError as unknown:
            answers.put(OffsetError(f"{without_password(location)}: {unknown}"))

    threading.Thread(target=look, name="groupkafka-checkpoint", daemon=True).start()
    try:
        found = answers.get(timeout=CHECK_STEP_S)
    except Empty:
        return of_unreadable_checkpoint(f"{without_password(location)} did not answer within {CHECK_STEP_S:.0f} s")
    if isinstance(found, OffsetError):
        return of_unreadable_checkpoint(str(found))
    return of_checkpoint(options, location, found)


def _of_records(
    options: Options, topics: Topics, partitions: Sequence[TopicPartition], view: GroupView | None
) -> Iterator[Finding]:
    commits = {one.partition: one.commit for one in view.partitions} if view is not None else {}
    try:
        ends = all_ends(topics, partitions)
        starts = topics.starts(partitions)
        ids = topics.ids({partition.topic for partition in partitions})
        # An offset or time for a partition must exist, whether the group has commits or not.
        refuse_unknown(options.stream_start, partitions)
        starting = offsets_at(options.stream_start, [one for one in partitions if commits.get(one) is None], topics)
    except GroupKafkaError as wrong:
        yield Finding(Level.ERROR, "start", str(wrong))
        return
    yield from of_start(options, Known(partitions, commits, starting, LogState(ids, starts, ends)))
    filled = [one for one in sorted(starts.keys() & ends.keys()) if ends[one] > starts[one]]
    tried = None
    if filled:
        start, end = starts[filled[0]], ends[filled[0]]
        tried = FetchRange(*filled[0], max(start, end - LAST_OFFSETS), end)
    yield _of_fetch(options, tried)
    yield _of_isolation(options, topics, partitions)


def _of_fetch(options: Options, last: FetchRange | None) -> Finding:
    """Return whether records arrive with the readers' own settings.

    Args:
        options: the query's options.
        last: the last offsets of a partition; `None` if all partitions are empty.
    """
    settings = options.fetch_settings()
    settings = replace(settings, poll_timeout_ms=min(settings.poll_timeout_ms, round(CHECK_STEP_S * 1000)))
    reader = f"the {installed_reader().name} reader"
    if last is None:
        return Finding(Level.OK, "fetch", f"all partitions are empty, so no record could be read; a query would use {reader}")
    try:
        with closing(fetch(last, settings)) as batches:  # type: ignore[type-var]  # they are generators
            rows = next((batch.num_rows for batch in batches), 0)
    except GroupKafkaError as failed:
        return Finding(Level.ERROR, "fetch", str(failed))
    if not rows:
        return Finding(Level.OK, "fetch", f"{reader} reached the end of {last} and found no record in it")
    return Finding(Level.OK, "fetch", f"{reader} has read {rows} records of {last}")


def _of_isolation(options: Options, topics: Topics, partitions: Sequence[TopicPartition]) -> Finding:
    if not options.read_committed:
        return Finding(
            Level.OK,
            "isolation",
            "read_uncommitted: records of open and aborted transactions are read too; kafka.isolation.level=read_committed "
            "excludes them",
        )
    try:
        seen = visibility(_topics(options, read_committed=False), topics, partitions)
    except GroupKafkaError as refused:
        return Finding(Level.ERROR, "isolation", str(refused))
    if silent := [one.partition for one in seen if one.hidden is None]:
        return Finding(
            Level.WARNING,
            "isolation",
            f"read_committed: the leaders of {listed(silent)} did not say whether open transactions block reading",
        )
    held = {one.partition: one.hidden for one in seen if one.hidden}
    if not held:
        return Finding(Level.OK, "isolation", "read_committed: no open transaction blocks reading")
    return Finding(
        Level.WARNING,
        "isolation",
        f"read_committed: open transactions block {sum(held.values())} offsets, in {listed(held)}. They are read when "
        "the transactions end. If they do not end, see who may have them: groupkafka transactions --topic TOPIC.",
    )
