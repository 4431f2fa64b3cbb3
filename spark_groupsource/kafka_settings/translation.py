"""Translates the `kafka.*` options from Kafka's Java client settings to librdkafka settings.

Users of Spark's own source write Java's names and values. librdkafka's names are also accepted. A setting with the same meaning
in librdkafka is passed on, renamed or rewritten. A setting that would have no effect, or a different one, is an error, which says
what to write instead.

In this package, names do not have the `kafka.` prefix, but messages always show it. A message shows a value only if its setting
is known and not secret.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from ipaddress import IPv6Address
from typing import NamedTuple

from spark_groupsource.errors import OptionError
from spark_groupsource.kafka_settings.draft import Draft, class_name, exists
from spark_groupsource.kafka_settings.key_stores import translate_keystore, translate_truststore
from spark_groupsource.kafka_settings.login import check_mechanism, refuse_amazon_iam, translate_jaas, translate_oauth
from spark_groupsource.kafka_settings.secrets import Settings, shown, shown_name
from spark_groupsource.kafka_settings.tables import (
    ASSIGNORS,
    AT_MOST,
    CALLBACKS,
    CLASSIC_ONLY,
    CONSUMER_ONLY,
    KNOWN_NAMES,
    NAMES,
    NAMES_CODE,
    OAUTH_CALLBACK,
    PRODUCER_ONLY,
    REFUSED_SETTINGS,
    RENAMED,
)

_ADDRESS = re.compile(r"(?:(\w+)://)?(?:\[([^\[\]]+)\]|([^\[\]]+)):0*([0-9]{1,5})", re.ASCII)
_NAME = re.compile(r"[^\s\[\]/:@%]+")
_ZONE = re.compile(r"[^\s\[\]/:@%]+")

HOST_AND_PORT = "write host:port, such as kafka-1:9092 or [fe80::1%eth0]:9092, with a port from 1 to 65535"


class Translation(NamedTuple):
    """The settings for librdkafka, and one sentence for each problem in the user's settings."""

    settings: Settings
    problems: tuple[str, ...]


def option_error(problems: tuple[str, ...]) -> OptionError:
    """Return an error that lists all problems."""
    if len(problems) == 1:
        return OptionError(problems[0])
    return OptionError(f"{len(problems)} options are wrong:" + "".join(f"\n  - {problem}" for problem in problems), problems)


def translate(settings: Mapping[str, str]) -> dict[str, str]:
    """Translate Kafka client settings for librdkafka, or raise an error that lists all problems.

    Args:
        settings: The values by Java's or librdkafka's names, in upper or lower case and without the `kafka.` prefix.

    Returns:
        The settings for librdkafka.

    Raises:
        OptionError: A setting is invalid. The message lists every problem, and shows no secret.
    """
    translation = translation_of(settings)
    if translation.problems:
        raise option_error(translation.problems)
    return dict(translation.settings)


def translation_of(settings: Mapping[str, str], *, writes: bool = False) -> Translation:
    """Translate settings, and return the translated ones, and the problems in the others.

    Args:
        settings: See `translate`.
        writes: Whether the settings are for a producer instead of a consumer.
    """
    draft = Draft({name.strip().lower(): value for name, value in settings.items()}, writes=writes)
    for step in (
        _refuse_unusable_text,
        refuse_amazon_iam,
        translate_jaas,
        translate_oauth,
        translate_truststore,
        translate_keystore,
        _leave_out_other_codecs,
        _translate_each,
        _rewrite_servers,
        check_mechanism,
        _check_layers,
        _check_protocol,
        _check_relations,
        _check_suites,
    ):
        step(draft)
    return Translation(Settings(draft.settings), tuple(dict.fromkeys(draft.problems)))


def _refuse_unusable_text(draft: Draft) -> None:
    for name, value in list(draft.given.items()):
        if "\0" in name + value or any("\ud800" <= character <= "\udfff" for character in name + value):
            draft.take(name)
            draft.wrong(name, "it contains a character that Kafka clients cannot use (NUL, or half a surrogate pair)")


def _leave_out_other_codecs(draft: Draft) -> None:
    """Remove the compression levels of unused codecs, because librdkafka has only one level, for the codec in use."""
    used = (draft.given.get("compression.type") or draft.given.get("compression.codec") or "none").strip().lower()
    for codec in {"gzip", "lz4", "zstd"} - {used} if draft.writes else ():
        draft.take(f"compression.{codec}.level")


def _translate_each(draft: Draft) -> None:
    """Translate the settings that do not depend on others."""
    if "metadata.max.age.ms" in draft.given and "topic.metadata.refresh.interval.ms" not in draft.given:
        # In Java, this setting is the interval between metadata requests. In librdkafka, the setting with this name is how long
        # an answer is valid, which librdkafka derives from the interval.
        draft.put("topic.metadata.refresh.interval.ms", draft.given.pop("metadata.max.age.ms"), "metadata.max.age.ms")
    of_others, reason = (CONSUMER_ONLY, _OF_CONSUMERS) if draft.writes else (PRODUCER_ONLY, _OF_PRODUCERS)
    for name, value in sorted(draft.given.items()):
        target = RENAMED.get(name, name)
        if name.startswith("test."):
            draft.wrong(name, "it is for librdkafka's own tests; remove it")
        elif name in CALLBACKS or name.endswith("_cb"):
            draft.wrong(name, "an option cannot carry a function; remove it")
        elif name in of_others:
            draft.wrong(name, reason)
        elif name in REFUSED_SETTINGS:
            draft.wrong(name, REFUSED_SETTINGS[name])
        elif name == "partition.assignment.strategy":
            _translate_assignors(draft, value)
        elif name == "buffer.memory":
            _translate_buffer(draft, value)
        elif target in NAMES or (exists(target) and not NAMES_CODE.search(target)):
            draft.put(target, value, name)
        else:
            usable = KNOWN_NAMES - of_others - REFUSED_SETTINGS.keys()
            near = difflib.get_close_matches(name, usable, n=3, cutoff=0.75) if shown_name(name) == name else []
            hint = f". Did you mean {' or '.join('kafka.' + found for found in near)}?" if near else ""
            draft.wrong(name, f"Kafka's {'producer' if draft.writes else 'consumer'} has no setting with this name{hint}")


_OF_PRODUCERS = "it is a producer setting, but this source only reads; remove it"
_OF_CONSUMERS = "it is a consumer setting, but this sink only writes; remove it"


def _rewrite_servers(draft: Draft) -> None:
    """Convert the brokers' addresses to the form that librdkafka reads."""
    name = "bootstrap.servers"
    given = draft.settings.get(name)
    if given is None or draft.has_mistake("security.protocol"):  # the addresses' protocol is unknown
        return
    try:
        draft.settings[name] = servers(given, draft.settings.get("security.protocol", "plaintext"))
    except ValueError as wrong:
        draft.wrong(draft.sources[name], str(wrong), value=given)


def _translate_buffer(draft: Draft, value: str) -> None:
    """Translate Java's `buffer.memory`, which is in bytes, to librdkafka's setting in KiB."""
    if re.fullmatch(r"[0-9]{1,12}", value.strip()) and int(value) >= 1024:
        draft.put("queue.buffering.max.kbytes", str(int(value) // 1024), "buffer.memory")
    else:
        draft.wrong("buffer.memory", "a number of at least 1024 bytes is expected", value=value)


def _translate_assignors(draft: Draft, value: str) -> None:
    name = "partition.assignment.strategy"
    given = [class_name(part) for part in value.split(",") if part.strip()]
    known = [ASSIGNORS.get(part) or ASSIGNORS.get(part.lower()) for part in given]
    if not given or None in known:
        draft.wrong(
            name, "cooperative-sticky, range or roundrobin (or the Java class) is expected; librdkafka has no other assignor"
        )
    elif len(set(known)) > 1 and "cooperative-sticky" in known:
        draft.wrong(
            name,
            "cooperative-sticky cannot be combined with range or roundrobin, because librdkafka cannot move a running group "
            "from one kind to the other. Set cooperative-sticky alone, or the assignor of the group's other members",
        )
    else:
        draft.put(name, ",".join(assignor for assignor in dict.fromkeys(known) if assignor), name)


def _check_layers(draft: Draft) -> None:
    """Refuse credentials and certificates that the security protocol would ignore, because users expect a safer connection."""
    protocol = draft.settings.get("security.protocol", "plaintext")
    for layer, prefix, remedy in (
        ("sasl", ("sasl.", "enable.sasl.", OAUTH_CALLBACK), "SASL_SSL (or SASL_PLAINTEXT)"),
        ("ssl", ("ssl.ca.", "ssl.key", "ssl.certificate."), "SSL or SASL_SSL"),
    ):
        unused = sorted({draft.sources[name] for name in draft.settings if name.startswith(prefix)})
        if unused and layer not in protocol.split("_") and not draft.has_mistake("security.protocol"):
            names = ", ".join("kafka." + name for name in unused)
            draft.wrong("security.protocol", f"it is {protocol}, so {names} would have no effect; set it to {remedy}")


def _check_protocol(draft: Draft) -> None:
    if draft.settings.get("group.protocol", "classic") == "classic":
        if "group.remote.assignor" in draft.settings:
            draft.wrong(
                "group.remote.assignor",
                "it belongs to kafka.group.protocol=consumer; with classic, set kafka.partition.assignment.strategy",
            )
        return
    for name in CLASSIC_ONLY:
        if name in draft.settings:
            draft.wrong(name, "with kafka.group.protocol=consumer, the broker decides this (KIP-848); remove it")


def _check_relations(draft: Draft) -> None:
    settings = draft.settings
    classic = settings.get("group.protocol", "classic") == "classic"
    for low, low_default, high, high_default in AT_MOST:
        if (low not in settings and high not in settings) or (low in CLASSIC_ONLY and not classic):
            continue
        least, most = int(settings.get(low, low_default)), int(settings.get(high, high_default))
        if least > most:
            by_default = "" if low in settings else " by default"
            draft.wrong(
                low, f"it is {least} ms{by_default}, which is above kafka.{high} ({most} ms); lower one or raise the other"
            )
    sent = int(settings.get("message.max.bytes", "1000000"))
    received = int(settings.get("receive.message.max.bytes", "100000000"))
    fetched = int(settings.get("fetch.max.bytes", max(52428800, sent)))
    if "fetch.max.bytes" in settings and fetched < sent:
        draft.wrong("fetch.max.bytes", f"it is {fetched}; librdkafka needs at least kafka.message.max.bytes, which is {sent}")
    if "receive.message.max.bytes" in settings and received < fetched + 512:
        draft.wrong(
            "receive.message.max.bytes", f"it is {received}, but it must be at least kafka.fetch.max.bytes ({fetched}) + 512"
        )
    if int(settings.get("topic.metadata.refresh.interval.ms", 1)) < 0:
        name = "topic.metadata.refresh.interval.ms"
        draft.wrong(draft.sources[name], "the query would never notice new partitions and topics; set a time in ms, or remove it")


def _check_suites(draft: Draft) -> None:
    suites = draft.settings.get("ssl.cipher.suites", "")
    if "_WITH_" in suites:
        draft.wrong("ssl.cipher.suites", "OpenSSL's cipher suite names are expected, such as ECDHE-RSA-AES128-GCM-SHA256")
    elif "TLS_" in suites:
        draft.wrong(
            "ssl.cipher.suites",
            "it contains TLS 1.3 suites, but librdkafka's list is for TLS 1.2, so all TLS 1.3 suites remain allowed. Remove the "
            "names that begin with TLS_. To exclude such a suite, set ssl.cipher.suites on the brokers",
        )


def servers(text: str, protocol: str) -> str:
    """Return the addresses in the form that librdkafka reads: host:port separated by commas, with IPv6 addresses in brackets.

    The Java client ignores empty entries and blanks around an address, and accepts an IPv6 address without brackets
    (ClientUtils.parseAndValidateAddresses, Utils.HOST_PORT_PATTERN). librdkafka treats the port of such an address as part of the
    host, and a line break as part of the name, and uses 9092 if the port is missing. If it cannot read a server, it drops this
    one and all that follow, and only logs a line.

    Args:
        text: The addresses, in any form that the Java client accepts. Each may begin with the protocol's name, in upper or lower
            case.
        protocol: `security.protocol`, in lower case.

    Raises:
        ValueError: An address has no port, an invalid port or another protocol, or there is no address at all. The message says
            what to write, and shows no password.
    """
    given = [server.strip() for server in text.split(",")]
    read = [_server(server, protocol) for server in given if server]
    if not read:
        raise ValueError(f"it names no broker: {HOST_AND_PORT}")
    return ",".join(read)


def _server(server: str, protocol: str) -> str:
    address = _ADDRESS.fullmatch(server)
    host = None if address is None else _host(address[2] or address[3])
    if address is None or host is None or not 0 < int(address[4]) < 65536:
        raise ValueError(f"{shown('', server)} is not a broker address: {HOST_AND_PORT}")
    if (address[1] or protocol).lower() != protocol:
        raise ValueError(f"{address[1]}:// is not kafka.security.protocol, which is {protocol}. Write only host:port")
    return f"{host}:{int(address[4])}"


def _host(text: str) -> str | None:
    """Return a name or an IPv4 address unchanged, an IPv6 address with its zone in brackets, or `None` for anything else."""
    if _NAME.fullmatch(text):
        return text
    address, mark, zone = text.partition("%")
    try:
        IPv6Address(address)
    except ValueError:
        return None
    return f"[{text}]" if not mark or _ZONE.fullmatch(zone) else None
