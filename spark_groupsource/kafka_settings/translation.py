"""`kafka.*`: settings of Kafka's Java client in, settings of librdkafka out.

Users of Spark's own source have Java's names and forms; librdkafka's names are taken as well. What means the same is
passed, renamed or rewritten; what would do nothing here, or something else, is an error that says what to write instead.
Names are without the `kafka.` prefix inside this module and with it in every message. A value appears in a message only
when its setting is known and is not a secret.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import NamedTuple

from spark_groupsource.errors import OptionError
from spark_groupsource.kafka_settings.draft import Draft, class_name
from spark_groupsource.kafka_settings.key_stores import keystore, truststore
from spark_groupsource.kafka_settings.login import amazon_iam, jaas, mechanism, oauth
from spark_groupsource.kafka_settings.secrets import Settings
from spark_groupsource.kafka_settings.tables import (
    ASSIGNORS,
    AT_MOST,
    CALLBACKS,
    CLASSIC_ONLY,
    KNOWN_NAMES,
    OAUTH_CALLBACK,
    PRODUCER_ONLY,
    PROPERTIES,
    REFUSED_SETTINGS,
    RENAMED,
)


class Translation(NamedTuple):
    """What came out: librdkafka's settings, and what is wrong with the given ones, one sentence each."""

    settings: Settings
    problems: tuple[str, ...]


def option_error(problems: tuple[str, ...]) -> OptionError:
    """One error for any number of mistakes."""
    if len(problems) == 1:
        return OptionError(problems[0])
    return OptionError(f"{len(problems)} options are wrong:" + "".join(f"\n  - {problem}" for problem in problems), problems)


def translate(settings: Mapping[str, str]) -> dict[str, str]:
    """Translate Kafka client settings for librdkafka.

    Args:
        settings: names without the `kafka.` prefix, in any case; Java's or librdkafka's.

    Raises:
        OptionError: with every mistake. It contains no secret.
    """
    translation = translation_of(settings)
    if translation.problems:
        raise option_error(translation.problems)
    return dict(translation.settings)


def translation_of(settings: Mapping[str, str]) -> Translation:
    """As `translate`, with the mistakes beside what could be translated."""
    draft = Draft({name.strip().lower(): value for name, value in settings.items()})
    for step in (
        _unusable_text,
        amazon_iam,
        jaas,
        oauth,
        truststore,
        keystore,
        _each,
        mechanism,
        _layers,
        _protocol,
        _relations,
    ):
        step(draft)
    return Translation(Settings(draft.settings), tuple(dict.fromkeys(draft.problems)))


def _unusable_text(draft: Draft) -> None:
    for name, value in list(draft.given.items()):
        if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
            draft.take(name)
            draft.wrong(name, "it contains a character (NUL, or half a surrogate pair) that Kafka's clients cannot take")


def _each(draft: Draft) -> None:
    """Take what needs no company, name by name."""
    if "metadata.max.age.ms" in draft.given and "topic.metadata.refresh.interval.ms" not in draft.given:
        # Java's setting says how often metadata is asked for; librdkafka's of that name, how long an answer is believed,
        # which follows from the interval.
        draft.put("topic.metadata.refresh.interval.ms", draft.given.pop("metadata.max.age.ms"), "metadata.max.age.ms")
    for name, value in sorted(draft.given.items()):
        target = RENAMED.get(name, name)
        if name in CALLBACKS or name.endswith("_cb"):
            draft.wrong(name, "an option cannot carry a function; remove it")
        elif name in PRODUCER_ONLY:
            draft.wrong(name, "it is a producer's setting, and this source only reads; remove it")
        elif name in REFUSED_SETTINGS:
            draft.wrong(name, REFUSED_SETTINGS[name])
        elif name == "partition.assignment.strategy":
            _assignors(draft, value)
        elif target in PROPERTIES:
            draft.put(target, value, name)
        else:
            near = difflib.get_close_matches(name, KNOWN_NAMES - frozenset(REFUSED_SETTINGS), n=3, cutoff=0.75)
            hint = f". Did you mean {' or '.join('kafka.' + found for found in near)}?" if near else ""
            draft.wrong(name, f"Kafka's consumer has no setting of this name{hint}")


def _assignors(draft: Draft, value: str) -> None:
    name = "partition.assignment.strategy"
    given = [class_name(part) for part in value.split(",") if part.strip()]
    known = [ASSIGNORS.get(part) or ASSIGNORS.get(part.lower()) for part in given]
    if not given or None in known:
        draft.wrong(
            name, "cooperative-sticky, range or roundrobin (or the Java classes of these) are expected; librdkafka has no other"
        )
    elif len(set(known)) > 1 and "cooperative-sticky" in known:
        draft.wrong(
            name,
            "cooperative-sticky cannot stand in one list with range or roundrobin: librdkafka does not move a live group from "
            "one kind to the other. Set cooperative-sticky alone, or what the other members of the group use",
        )
    else:
        draft.put(name, ",".join(assignor for assignor in dict.fromkeys(known) if assignor), name)


def _layers(draft: Draft) -> None:
    """Credentials that would not be used: the connection is not what their owner thinks it is."""
    protocol = draft.settings.get("security.protocol", "plaintext")
    for layer, prefix, remedy in (
        ("sasl", ("sasl.", "enable.sasl.", OAUTH_CALLBACK), "SASL_SSL (or SASL_PLAINTEXT)"),
        ("ssl", ("ssl.ca.", "ssl.key", "ssl.certificate."), "SSL or SASL_SSL"),
    ):
        unused = sorted({draft.sources[name] for name in draft.settings if name.startswith(prefix)})
        if unused and layer not in protocol.split("_") and not draft.silent_on("security.protocol"):
            names = ", ".join("kafka." + name for name in unused)
            draft.wrong("security.protocol", f"it is {protocol}, which leaves {names} unused; set it to {remedy}")


def _protocol(draft: Draft) -> None:
    if draft.settings.get("group.protocol", "classic") == "classic":
        if "group.remote.assignor" in draft.settings:
            draft.wrong(
                "group.remote.assignor",
                "it belongs to kafka.group.protocol=consumer; with classic set kafka.partition.assignment.strategy",
            )
        return
    for name in CLASSIC_ONLY:
        if name in draft.settings:
            draft.wrong(name, "with kafka.group.protocol=consumer the broker decides this (KIP-848); remove it")


def _relations(draft: Draft) -> None:
    settings = draft.settings
    classic = settings.get("group.protocol", "classic") == "classic"
    for low, low_default, high, high_default in AT_MOST:
        if (low not in settings and high not in settings) or (low in CLASSIC_ONLY and not classic):
            continue
        least, most = int(settings.get(low, low_default)), int(settings.get(high, high_default))
        if least > most:
            by_default = "" if low in settings else " by default"
            draft.wrong(low, f"it is {least} ms{by_default}, which is above kafka.{high} ({most} ms)")
    fetched = int(settings.get("fetch.max.bytes", "52428800"))
    sent, received = (
        int(settings.get("message.max.bytes", "1000000")),
        int(settings.get("receive.message.max.bytes", "100000000")),
    )
    if "fetch.max.bytes" in settings and fetched < sent:
        draft.wrong("fetch.max.bytes", f"it is {fetched}; librdkafka needs at least kafka.message.max.bytes, which is {sent}")
    if "receive.message.max.bytes" in settings and received < fetched + 512:
        draft.wrong(
            "receive.message.max.bytes", f"it is {received}, and has to be at least kafka.fetch.max.bytes ({fetched}) + 512"
        )
    if "_WITH_" in settings.get("ssl.cipher.suites", ""):
        draft.wrong("ssl.cipher.suites", "OpenSSL's names of cipher suites are expected, such as ECDHE-RSA-AES128-GCM-SHA256")
