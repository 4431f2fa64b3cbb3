"""Defines all of the sink's options, and reads the options for a write.

Names, defaults and meanings are the same as in Spark's own Kafka sink. A few additional options control exactly-once writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator

from spark_groupsource.options.client_settings import (
    LONGEST_TRANSACTION_MS,
    excludes_idempotence,
    producer_settings,
    request_settings,
)
from spark_groupsource.options.described import QueryOptions, described, option
from spark_groupsource.options.values import MAX_LONG, boolean, choice, topic_names, whole_number
from spark_groupsource.sink.names import DEFAULT_PREFIX
from spark_groupsource.sink.rules import Choice
from spark_groupsource.sink.settings import SinkSettings

WRITING = "Writing"
ONCE = "Each record once"
"""The headings in docs/sink.md."""

GIVEN_BY_SPARK = frozenset({"checkpointlocation", "path", "queryname", "outputmode", "trigger"})
"""Spark's own writer options, in lower case, which Spark may pass on together with the sink's options."""

Guarantee = Literal["exactly-once", "at-least-once"]


def _one_topic(text: str) -> str:
    names = topic_names(text)
    if len(names) > 1:
        raise ValueError("a single topic name is expected; to write to several topics, add a topic column")
    return names[0]


def _prefix(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,180}", text.strip()):
        raise ValueError("at most 180 letters, digits, '.', '_' and '-' are expected")
    return text.strip()


class SinkOptions(QueryOptions):
    """The validated options of a sink, as returned by `parse`. Immutable."""

    ignored = GIVEN_BY_SPARK
    writes = True

    topic: Annotated[str | None, BeforeValidator(_one_topic)] = option(
        "topic",
        section=WRITING,
        meaning="The topic to which every row is written. With this option, the `topic` column is ignored.",
    )

    include_headers: Annotated[bool, BeforeValidator(boolean)] = option(
        "includeHeaders",
        "false",
        section=WRITING,
        meaning="This option has no effect, as in Spark's own sink. If the rows have a `headers` column, it is always written.",
    )

    delivery_guarantee: Annotated[Guarantee | None, BeforeValidator(choice("exactly-once", "at-least-once"))] = option(
        "deliveryGuarantee",
        section=ONCE,
        only_here=True,
        shown_default="streams `exactly-once`, batch `at-least-once`",
        meaning=(
            "With `exactly-once`, each task writes in a transaction, and consumers with `isolation.level=read_committed` see "
            "each row once. With `at-least-once`, a micro-batch that Spark reruns is written again. A batch write is always at "
            "least once."
        ),
    )

    transactional_id_prefix: Annotated[str | None, BeforeValidator(_prefix)] = option(
        "transactionalIdPrefix",
        section=ONCE,
        use="streams",
        only_here=True,
        shown_default=f"`{DEFAULT_PREFIX}`",
        meaning=(
            "The prefix of the query's transactional ids and groups, so that you can grant ACLs for this prefix. The query's "
            "id follows the prefix, so several queries can share a prefix. Change it only while the query is waiting for data."
        ),
    )

    rewrite_batch: Annotated[int | None, BeforeValidator(whole_number(0, MAX_LONG))] = option(
        "rewriteBatch",
        section=ONCE,
        use="streams",
        only_here=True,
        meaning=(
            "The micro-batch number from the error message. Each task writes all of its rows from this micro-batch, unless it "
            "has already written exactly these rows. No row is missing, but some may be duplicated."
        ),
    )

    skip_batch: Annotated[int | None, BeforeValidator(whole_number(0, MAX_LONG))] = option(
        "skipBatch",
        section=ONCE,
        use="streams",
        only_here=True,
        meaning=(
            "The micro-batch number from the error message. No task writes any more of this micro-batch's rows, and rows "
            "that were already written remain in the topic. No row is duplicated, but some may be missing."
        ),
    )

    def _conflicts(self, use: Literal["stream", "batch"] | None) -> Iterator[str]:
        once = self.exactly_once(use)
        if use == "batch" and self.delivery_guarantee == "exactly-once":
            yield (
                "deliveryGuarantee = 'exactly-once' is for streams only: a batch write has no checkpoint that would show "
                "whether it is a repeat. Remove the option; a batch write is at least once."
            )
        for name, value in (
            ("transactionalIdPrefix", self.transactional_id_prefix),
            ("rewriteBatch", self.rewrite_batch),
            ("skipBatch", self.skip_batch),
        ):
            if value is not None and not once:
                yield f"{name} is for streams with deliveryGuarantee=exactly-once: remove it."
        if self.rewrite_batch is not None and self.rewrite_batch == self.skip_batch:
            yield f"rewriteBatch={self.rewrite_batch} and skipBatch={self.skip_batch} contradict each other: remove one of them."
        if once and self.kafka.get("enable.idempotence") == "false":
            yield (
                "kafka.enable.idempotence=false cannot be combined with exactly-once: remove it, or set "
                "deliveryGuarantee=at-least-once."
            )
        for setting in excludes_idempotence(self.kafka):
            if once:
                yield f"{setting} cannot be combined with exactly-once: remove it, or set deliveryGuarantee=at-least-once."
            elif self.kafka.get("enable.idempotence") == "true":
                yield f"{setting} cannot be combined with kafka.enable.idempotence=true: remove one of them."
        merged = producer_settings(self.kafka, exactly_once=once)
        yield from _timeouts(merged, once=once)
        if int(merged["queue.buffering.max.kbytes"]) * 1024 < int(merged["message.max.bytes"]):
            yield (
                f"kafka.buffer.memory ({int(merged['queue.buffering.max.kbytes']) * 1024} bytes) is less than "
                f"kafka.max.request.size ({merged['message.max.bytes']} bytes), so a row of that size would never fit: raise one "
                "or lower the other."
            )

    def exactly_once(self, use: Literal["stream", "batch"] | None) -> bool:
        """Return whether tasks write in transactions."""
        return use == "stream" and self.delivery_guarantee != "at-least-once"

    def sink_settings(self, use: Literal["stream", "batch"]) -> SinkSettings:
        """Return the settings for tasks that write. They contain secrets."""
        once = self.exactly_once(use)
        return SinkSettings(
            producer=producer_settings(self.kafka, exactly_once=once),
            requests=request_settings(self.kafka),
            topic=self.topic,
            exactly_once=once,
            prefix=self.transactional_id_prefix or DEFAULT_PREFIX,
            choice=Choice(self.rewrite_batch, self.skip_batch),
            longest_transaction_ms=LONGEST_TRANSACTION_MS if "transaction.timeout.ms" not in self.kafka else None,
        )


def _timeouts(merged: Mapping[str, str], *, once: bool) -> Iterator[str]:
    """Yield problems for conflicting timeouts, which librdkafka would otherwise refuse in a task, under its own names."""
    delivery, transaction = int(merged["message.timeout.ms"]), merged.get("transaction.timeout.ms")
    if delivery == 0:
        yield "kafka.delivery.timeout.ms=0 would wait forever for brokers that do not answer: set a time above 0, in ms."
    elif re.fullmatch(r"[0-9]+(\.[0-9]+)?", linger := merged["linger.ms"]) and float(linger) >= delivery:
        yield (
            f"kafka.linger.ms ({linger} ms) must be less than kafka.delivery.timeout.ms ({delivery} ms): lower one or raise the "
            "other."
        )
    if not once or transaction is None:
        return
    request = int(merged["socket.timeout.ms"])
    for name, value in (("kafka.delivery.timeout.ms", delivery), ("kafka.request.timeout.ms", request)):
        if value > int(transaction):
            yield (
                f"{name} ({value} ms) is longer than kafka.transaction.timeout.ms ({transaction} ms): lower one or raise the "
                "other."
            )


DESCRIBED_OF_SINK = described(SinkOptions)
"""The descriptions of all sink options except `kafka.*`, by option name."""
