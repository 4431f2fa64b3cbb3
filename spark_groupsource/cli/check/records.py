"""Reading: the reader of this machine, some records, and what open transactions hold back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

from confluent_kafka import libversion

from spark_groupsource.cli.check.findings import Finding, error, ok, warning
from spark_groupsource.cli.check.known import Source
from spark_groupsource.cli.visibility import visibility
from spark_groupsource.errors import GroupKafkaError
from spark_groupsource.fetch.choice import fetch, installed_reader
from spark_groupsource.fetch.contract import FetchRange
from spark_groupsource.handoff.losses import LogState
from spark_groupsource.partition import listed
from spark_groupsource.timeouts import CHECK_STEP_S

LAST_OFFSETS = 100
"""The number of offsets at a partition's end among which records are tried."""


def name_reader(_source: Source) -> Iterator[Finding]:
    """Name the reader that this machine has, and why."""
    reader = installed_reader()
    if reader.reason is None:
        yield ok("reader", f"this machine has the {reader.name} reader, with librdkafka {libversion()[0]}")
        return
    yield warning(
        "reader",
        f"this machine has the {reader.name} reader, because the native one cannot be used: {reader.reason}. The rows are the "
        f"same, but reading is several times slower. To use the native reader: {reader.advice}. Each executor's machine chooses "
        "its own reader, and logs if it has no native one.",
    )


def fetch_records(source: Source) -> Iterator[Finding]:
    """Find whether records arrive with the reader's own settings."""
    if source.logs is None:
        return  # `find_start` has said why
    reader = f"the {installed_reader().name} reader"
    last = last_offsets(source.logs)
    if last is None:
        yield ok("fetch", f"all partitions are empty, so no record could be read; a query would use {reader}")
        return
    settings = source.options.fetch_settings()
    settings = replace(settings, poll_timeout_ms=min(settings.poll_timeout_ms, round(CHECK_STEP_S * 1000)))
    try:
        with closing(fetch(last, settings)) as batches:
            rows = next((batch.num_rows for batch in batches), 0)
    except GroupKafkaError as failed:
        yield error("fetch", str(failed))
        return
    yield ok("fetch", f"{reader} has read {rows} records of {last}" if rows else f"{reader} has found no record in {last}")


def last_offsets(logs: LogState) -> FetchRange | None:
    """Return the last offsets of the first partition that has some; `None` if all partitions are empty."""
    for partition in sorted(logs.starts.keys() & logs.ends.keys()):
        start, end = logs.starts[partition], logs.ends[partition]
        if end > start:
            return FetchRange(*partition, max(start, end - LAST_OFFSETS), end)
    return None


def find_open_transactions(source: Source) -> Iterator[Finding]:
    """Find what open transactions hold back, if the query reads committed records only."""
    if not source.partitions:
        return  # `describe_topics` has said why
    if not source.options.read_committed:
        yield ok("isolation", "read_uncommitted: records of open and aborted transactions are read too")
        return
    try:
        seen = visibility(source.topics_as(read_committed=False), source.topics, source.partitions)
    except GroupKafkaError as refused:
        yield error("isolation", str(refused))
        return
    hidden = {visible.partition: visible.hidden for visible in seen if visible.hidden}
    if silent := [visible.partition for visible in seen if visible.hidden is None]:
        text = f"read_committed: the leaders of {listed(silent)} did not say whether open transactions block reading"
        yield warning("isolation", text)
    elif hidden:
        yield warning(
            "isolation",
            f"read_committed: open transactions block {sum(hidden.values())} offsets, in {listed(hidden)}. They are read when "
            "the transactions end. If they do not end, see who may have them: groupkafka transactions --topic TOPIC.",
        )
    else:
        yield ok("isolation", "read_committed: no open transaction blocks reading")
