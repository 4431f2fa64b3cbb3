"""Java's client settings become librdkafka's, or an error says what to write instead."""

from __future__ import annotations

import re

import pytest

from spark_groupsource.kafka_settings import translation
from spark_groupsource.kafka_settings.tables import (
    KERBEROS,
    NAMES,
    PRODUCER_ONLY,
    REASONS,
    REFUSED_SETTINGS,
    RENAMED,
)
from spark_groupsource.kafka_settings.translation import translate, translation_of
from spark_groupsource.options.model import DESCRIBED
from spark_groupsource.options.sink_model import DESCRIBED_OF_SINK
from tests.support.kafka_settings import accepted_by_librdkafka, refusal
from tests.unit.kafka_settings import test_key_stores, test_login

ASSIGNORS = "org.apache.kafka.clients.consumer."

# --- Which names there are ---------------------------------------------------------------------------------------------------


def test_a_setting_that_only_a_newer_librdkafka_knows_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translation, "NAMES", NAMES - {"socket.nagle.disable", "ssl.providers"})
    assert translate({"socket.nagle.disable": "TRUE"}) == {"socket.nagle.disable": "true"}
    assert "Expected bool value" in refusal({"socket.nagle.disable": "yes"})
    assert "no setting with this name" in refusal({"ssl.providers": "default"}), "its name may name code"


# ConsumerConfig.configNames() of Kafka 4.3; `exclude.internal.topics` is an option of its own.
JAVA_CONSUMER_SETTINGS = re.findall(
    r"\S+",
    """
allow.auto.create.topics auto.commit.interval.ms auto.offset.reset bootstrap.servers check.crcs client.dns.lookup client.id
client.rack config.providers connections.max.idle.ms default.api.timeout.ms enable.auto.commit enable.metrics.push
fetch.max.bytes fetch.max.wait.ms fetch.min.bytes group.id group.instance.id group.protocol
group.remote.assignor heartbeat.interval.ms interceptor.classes internal.throw.on.fetch.stable.offset.unsupported
isolation.level key.deserializer max.partition.fetch.bytes max.poll.interval.ms max.poll.records metadata.max.age.ms
metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters metrics.num.samples
metrics.recording.level metrics.sample.window.ms partition.assignment.strategy receive.buffer.bytes reconnect.backoff.max.ms
reconnect.backoff.ms request.timeout.ms retry.backoff.max.ms retry.backoff.ms sasl.client.callback.handler.class
sasl.jaas.config sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name
sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor sasl.login.callback.handler.class sasl.login.class
sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.mechanism sasl.oauthbearer.assertion.algorithm
sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file
sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
sasl.oauthbearer.header.urlencode sasl.oauthbearer.jwks.endpoint.refresh.ms
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class
sasl.oauthbearer.scope sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url
security.protocol security.providers send.buffer.bytes session.timeout.ms share.acknowledgement.mode share.acquire.mode
socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms ssl.cipher.suites ssl.enabled.protocols
ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.key.password ssl.keymanager.algorithm
ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password ssl.keystore.type ssl.protocol
ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm ssl.truststore.certificates ssl.truststore.location
ssl.truststore.password ssl.truststore.type value.deserializer
""",
)


@pytest.mark.parametrize("name", JAVA_CONSUMER_SETTINGS)
def test_every_setting_of_the_java_consumer_is_translated_or_refused_with_a_reason(name: str) -> None:
    assert not any("has no setting with this name" in problem for problem in translation_of({name: "x"}).problems)


# --- What is translated ------------------------------------------------------------------------------------------------------

TRANSLATED: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "names in any case": ({"Client.ID": "Me", "CLIENT.RACK": "a"}, {"client.id": "Me", "client.rack": "a"}),
    "the same in both": ({"session.timeout.ms": " 6000 "}, {"session.timeout.ms": "6000"}),
    "request timeout": ({"request.timeout.ms": "120000"}, {"socket.timeout.ms": "120000"}),
    "socket buffers": (
        {"receive.buffer.bytes": "65536", "send.buffer.bytes": "-1"},
        {"socket.receive.buffer.bytes": "65536", "socket.send.buffer.bytes": "0"},
    ),
    "connections never idle": ({"connections.max.idle.ms": "-1"}, {"connections.max.idle.ms": "0"}),
    "metadata age is Java's": ({"metadata.max.age.ms": "60000"}, {"topic.metadata.refresh.interval.ms": "60000"}),
    "metadata at each poll": ({"metadata.max.age.ms": "0"}, {"topic.metadata.refresh.interval.ms": "100"}),
    "numbers of Java beyond librdkafka's": (
        {
            "metadata.max.age.ms": str(2**63 - 1),
            "max.poll.interval.ms": str(2**31 - 1),
            "retry.backoff.ms": "0",
            "max.partition.fetch.bytes": str(2**31 - 1),
            "fetch.max.bytes": str(2**31 - 1),
        },
        {
            "topic.metadata.refresh.interval.ms": "3600000",
            "max.poll.interval.ms": "86400000",
            "retry.backoff.ms": "1",
            "max.partition.fetch.bytes": "1000000000",
            "fetch.max.bytes": "2147483135",
        },
    ),
    "metadata age beside librdkafka's own": (
        {"metadata.max.age.ms": "60000", "topic.metadata.refresh.interval.ms": "20000"},
        {"metadata.max.age.ms": "60000", "topic.metadata.refresh.interval.ms": "20000"},
    ),
    "booleans and words in any case": (
        {"check.crcs": "True", "isolation.level": "READ_COMMITTED", "group.protocol": "CONSUMER"},
        {"check.crcs": "true", "isolation.level": "read_committed", "group.protocol": "consumer"},
    ),
    "a flag is a word, and a number or a name is kept": (
        {"enable.ssl.certificate.verification": "0", "socket.max.fails": "0", "group.id": "TRUE", "client.id": "False"},
        {"enable.ssl.certificate.verification": "false", "socket.max.fails": "0", "group.id": "TRUE", "client.id": "False"},
    ),
    "OpenSSL's providers": ({"ssl.providers": " default,legacy"}, {"ssl.providers": "default,legacy"}),
    "Java's empty defaults": ({"client.rack": "", "client.id": ""}, {}),
    "librdkafka's own aliases": (
        {"fetch.message.max.bytes": "2000000", "metadata.broker.list": "a:1"},
        {"max.partition.fetch.bytes": "2000000", "bootstrap.servers": "a:1"},
    ),
    "assignors by name and by class": (
        {"partition.assignment.strategy": f"Range, {ASSIGNORS}RoundRobinAssignor"},
        {"partition.assignment.strategy": "range,roundrobin"},
    ),
    "the broker's assignor": (
        {"group.protocol": "consumer", "group.remote.assignor": "range"},
        {"group.protocol": "consumer", "group.remote.assignor": "range"},
    ),
    **test_login.TRANSLATED,
    **test_key_stores.TRANSLATED,
}


@pytest.mark.parametrize(("java", "librdkafka"), TRANSLATED.values(), ids=TRANSLATED)
def test_it_is_translated_and_librdkafka_takes_it(java: dict[str, str], librdkafka: dict[str, str]) -> None:
    assert translate(java) == librdkafka
    assert accepted_by_librdkafka(translate(java))


# --- What is refused ---------------------------------------------------------------------------------------------------------

REFUSALS: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "misspelt": ({"sesion.timeout.ms": "1"}, ("kafka.sesion.timeout.ms", "Did you mean kafka.session.timeout.ms")),
    "not a number": ({"session.timeout.ms": "6s"}, ("kafka.session.timeout.ms = '6s'", "a whole number")),
    "too large under Java's name": (
        {"request.timeout.ms": "400000"},
        ("kafka.request.timeout.ms = '400000'", "range 10..300000"),
    ),
    "no metadata in Java": ({"metadata.max.age.ms": "-1"}, ("kafka.metadata.max.age.ms", "never notice new partitions")),
    "suites by Java's names": (
        {"ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"},
        ("kafka.ssl.cipher.suites", "OpenSSL's cipher suite names"),
    ),
    "a suite of TLS 1.3": (
        {"ssl.cipher.suites": "ECDHE-RSA-AES128-GCM-SHA256,TLS_AES_128_GCM_SHA256"},
        ("kafka.ssl.cipher.suites", "TLS 1.3 suites", "Remove the names that begin with TLS_"),
    ),
    "not a boolean": ({"check.crcs": "yes"}, ("kafka.check.crcs = 'yes'", "true or false")),
    "no such debug flag": ({"debug": "cgrp,everything"}, ("kafka.debug", 'Invalid value "everything"')),
    "NUL": ({"client.id": "a\0b"}, ("kafka.client.id", "NUL")),
    "half a character": ({"client.id": "a\ud800b"}, ("kafka.client.id", "surrogate")),
    "two names, two values": (
        {"fetch.max.wait.ms": "1", "fetch.wait.max.ms": "2"},
        ("kafka.fetch.wait.max.ms", "kafka.fetch.max.wait.ms", "remove one of them"),
    ),
    "plug-in": ({"plugin.library.paths": "/opt/code"}, ("kafka.plugin.library.paths", "native library")),
    "TLS provider below a folder": ({"ssl.providers": "../code"}, ("kafka.ssl.providers", "without paths")),
    "eager and cooperative": (
        {"partition.assignment.strategy": f"{ASSIGNORS}RangeAssignor,{ASSIGNORS}CooperativeStickyAssignor"},
        ("kafka.partition.assignment.strategy", "cannot be combined"),
    ),
    "an assignor that librdkafka lacks": (
        {"partition.assignment.strategy": f"{ASSIGNORS}StickyAssignor"},
        ("kafka.partition.assignment.strategy", "cooperative-sticky, range or roundrobin"),
    ),
    "sessions under KIP-848": (
        {"group.protocol": "consumer", "session.timeout.ms": "10000", "heartbeat.interval.ms": "1000"},
        ("kafka.session.timeout.ms", "kafka.heartbeat.interval.ms", "the broker decides"),
    ),
    "assignors under KIP-848": (
        {"group.protocol": "consumer", "partition.assignment.strategy": "range"},
        ("kafka.partition.assignment.strategy", "the broker decides"),
    ),
    "the broker's assignor under classic": (
        {"group.remote.assignor": "uniform"},
        ("kafka.group.remote.assignor", "kafka.group.protocol=consumer"),
    ),
    "session above poll interval": (
        {"session.timeout.ms": "600000"},
        ("kafka.session.timeout.ms", "600000", "kafka.max.poll.interval.ms (300000 ms)"),
    ),
    "heartbeats rarer than sessions": (
        {"session.timeout.ms": "6000", "heartbeat.interval.ms": "7000"},
        ("kafka.heartbeat.interval.ms", "above kafka.session.timeout.ms"),
    ),
    "small fetches": ({"fetch.max.bytes": "1000"}, ("kafka.fetch.max.bytes", "kafka.message.max.bytes")),
    "responses that are small for what a message may have": (
        {"message.max.bytes": "200000000", "receive.message.max.bytes": "100000000"},
        ("kafka.receive.message.max.bytes", "(200000000) + 512"),
    ),
    "small responses": (
        {"receive.message.max.bytes": "1000000"},
        ("kafka.receive.message.max.bytes", "kafka.fetch.max.bytes"),
    ),
    **test_login.REFUSALS,
    **test_key_stores.REFUSALS,
}


@pytest.mark.parametrize(("settings", "said"), REFUSALS.values(), ids=REFUSALS)
def test_it_is_refused_and_the_error_says_what_to_write_instead(settings: dict[str, str], said: tuple[str, ...]) -> None:
    message = refusal(settings)
    assert [fragment for fragment in said if fragment not in message] == []


def test_one_mistake_is_reported_once() -> None:
    several = {case for case, (settings, _) in REFUSALS.items() if len(translation_of(settings).problems) > 1}
    assert several == {"sessions under KIP-848", "OAuth without a client"}


@pytest.mark.parametrize("name", sorted(REFUSED_SETTINGS))
def test_every_refused_setting_is_named_with_one_of_six_reasons_and_what_to_do(name: str) -> None:
    (said,) = translation_of({name: "x"}, writes=name in PRODUCER_ONLY).problems
    reason, _, advice = said.removeprefix(f"kafka.{name}: ").partition("; ")
    assert reason in {*REASONS, KERBEROS.partition("; ")[0]}
    assert re.match("remove it|set |use |write |keys and values |rows with a key |OpenSSL ", advice)


def test_what_a_refusal_says_to_set_instead_can_be_set() -> None:
    advice = " ".join(REFUSED_SETTINGS.values())
    settings = set(re.findall(r"kafka\.([\w.]*\w)", advice))
    assert len(settings) >= 5
    assert settings <= NAMES | RENAMED.keys()
    options = set(re.findall(r"set the (\w+) option", advice))
    assert options == {"startingOffsets", "maxOffsetsPerTrigger", "transactionalIdPrefix"}
    assert options <= DESCRIBED.keys() | DESCRIBED_OF_SINK.keys()


def test_what_librdkafka_would_only_warn_of_is_not_passed_on() -> None:
    for name in sorted(PRODUCER_ONLY):
        assert "producer" in refusal({name: "1"}), name
