"""Whether the brokers have the group protocol of KIP-848, if the options ask for it. All brokers have the classic one."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from contextlib import closing

from confluent_kafka import Consumer, KafkaError

from spark_groupsource.brokers.broker_errors import explain
from spark_groupsource.brokers.client import make_client
from spark_groupsource.cli.check.findings import Finding, error, ok, warning
from spark_groupsource.cli.check.known import Source
from spark_groupsource.options.client_settings import member_settings
from spark_groupsource.options.model import Options
from spark_groupsource.patience import Deadline
from spark_groupsource.timeouts import CHECK_STEP_S

REFUSED_ASSIGNOR = "groupkafka-check"
"""An assignor that no broker has. A broker with KIP-848 refuses a heartbeat with it before it looks at the group."""

TOO_OLD = frozenset({KafkaError.UNSUPPORTED_VERSION, KafkaError._UNSUPPORTED_FEATURE})
"""Errors of brokers that do not have KIP-848. librdkafka may hide the code behind `_FATAL`, but quotes the text."""

_refusals_log = logging.getLogger("spark_groupsource.librdkafka.refusals")
"""Shows nothing. The refusal that is asked for is a fatal error for librdkafka, and it would log that."""
_refusals_log.disabled = True


def ask_for_protocol(source: Source) -> Iterator[Finding]:
    """Ask the brokers for the protocol in a way that they refuse, so that no member joins."""
    if source.options.group_protocol == "classic":
        return
    refusal = refusal_of(source.options)
    if refusal is None:
        text = f"the coordinator did not say within {CHECK_STEP_S:.0f} s whether it has kafka.group.protocol=consumer (KIP-848)."
        advice = "Brokers have it from 4.0 on. Run this check again, or set it to classic, which works everywhere."
        yield warning("protocol", f"{text} {advice}")
    elif _is_one_of(refusal, {KafkaError.UNSUPPORTED_ASSIGNOR}):
        yield ok("protocol", "the brokers have kafka.group.protocol=consumer (KIP-848)")
    elif _is_one_of(refusal, TOO_OLD):
        text = "the brokers do not have kafka.group.protocol=consumer (KIP-848), which Kafka has from 4.0 on. Set it to classic."
        yield error("protocol", text)
    else:
        yield error("protocol", str(explain(refusal, "asking for kafka.group.protocol=consumer")))


def refusal_of(options: Options) -> KafkaError | None:
    """Return what the brokers say to a request to join that those with KIP-848 refuse; `None` if they say nothing in time."""
    errors: list[KafkaError] = []
    # With the instance id it would be the static member that may be running.
    kafka = {name: value for name, value in options.kafka.items() if name != "group.instance.id"}
    settings = {
        **member_settings(kafka),
        "group.remote.assignor": REFUSED_ASSIGNOR,
        # Subscribing must create no topic, whatever the options say: nothing is written.
        "allow.auto.create.topics": "false",
    }
    with closing(make_client(Consumer, settings, errors.append, _refusals_log)) as consumer:
        consumer.subscribe(options.subscription())
        deadline = Deadline(CHECK_STEP_S)
        refusal: KafkaError | None = None
        while refusal is None and not deadline.over:
            message = consumer.poll(0.1)
            refusal = message.error() if message is not None else next((failed for failed in errors if failed.fatal()), None)
    return refusal


def _is_one_of(refusal: KafkaError, codes: Collection[int]) -> bool:
    return refusal.code() in codes or any(KafkaError(code).str() in refusal.str() for code in codes)
