"""Java's client settings become librdkafka's, or an error says what to write instead."""

from __future__ import annotations

import base64
import ctypes
import os
import re
from collections.abc import Mapping
from pathlib import Path

import confluent_kafka.cimpl
import pytest
from confluent_kafka import Consumer, KafkaException
from hypothesis import given
from hypothesis import strategies as st

from spark_groupsource.errors import OptionError
from spark_groupsource.kafka_settings.tables import (
    CALLBACKS,
    DEBUG_FLAGS,
    PRODUCER_ONLY,
    PROPERTIES,
    REFUSED,
    RENAMED,
    STRUCTURED,
)
from spark_groupsource.kafka_settings.translation import Settings, is_secret, translate, translation_of


def pem(label: str, body: str) -> str:
    lines = "\n".join(body[at : at + 64] for at in range(0, len(body), 64))
    return f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n"


# A certificate that signs itself, its key, and both as PKCS#12; made for these tests with openssl, trusted by nobody.
KEY_BODY = (
    "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgv7/Q/Gb2gESG3taKUqtORAMSf80CdhVKOVedpPsbQlehRANCAARqBepEAonP4waF9eXVmBp4O+SN"
    "DgKvLRYTwqYUA/E1TQEDZ3/S3e9MT+uJkazh0Mmw7aCUF1MnNMY/lPi34b2D"
)
CERTIFICATE_BODY = (
    "MIIBizCCATGgAwIBAgIUMrqLZQothsj0Th2odEz0y4UR8zYwCgYIKoZIzj0EAwIwGjEYMBYGA1UEAwwPZ3JvdXBrYWZrYS10ZXN0MCAXDTI2MTEyMTAzMDk1"
    "NloYDzIxMjYxMDI4MDMwOTU2WjAaMRgwFgYDVQQDDA9ncm91cGthZmthLXRlc3QwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAARqBepEAonP4waF9eXVmBp4"
    "O+SNDgKvLRYTwqYUA/E1TQEDZ3/S3e9MT+uJkazh0Mmw7aCUF1MnNMY/lPi34b2Do1MwUTAdBgNVHQ4EFgQUkWK2Iw6Q2Jnn9sB6PJkRLb9BFH0wHwYDVR0j"
    "BBgwFoAUkWK2Iw6Q2Jnn9sB6PJkRLb9BFH0wDwYDVR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNIADBFAiEAsXWLedXV2XTlmZatKtRfHRNq77ECu62sbLDK"
    "1Nou8PcCIFCcuCSra1pcmckGUYu5+l0VWhI9GN8nCqj3Bc921AWw"
)
PKCS12_BODY = (
    "MIIEHAIBAzCCA9IGCSqGSIb3DQEHAaCCA8MEggO/MIIDuzCCAnIGCSqGSIb3DQEHBqCCAmMwggJfAgEAMIICWAYJKoZIhvcNAQcBMFcGCSqGSIb3DQEFDTBK"
    "MCkGCSqGSIb3DQEFDDAcBAhqWqB4z78M3gICCAAwDAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEEJj7zfy3qHBqZhXz06y/GwCAggHwAuokdg0kl+GKa7OD"
    "kx/ZnLw++KNrWivcwHrF5OdEnDRDfboIuuHDmtUUzyf8dqG6OWQY0EQN92nlbOFa67IoBhZtbAtQljOAkN9JUDsIdp21xfQhPXJ17/UsgE8gSLUyKHmhY4BE"
    "HiwwEE8ySV98nYVn7q2sJy/2+HAcyTC/Y8of7452a62Pm0G7q/CuqIi5Q9ee2M1up97BABN28d1pNzb/7iEXxe3y83kceptSYCtIUrG7he9Tlr3FPwX/iPEq"
    "AiYEnuShdyNjB8ZH0zxazzpQ1UMaHua0jqrYZlRkSDb7pUSe/2lANfxADw7Dxgya7w9LXpwHV2h1PXm3Lzh//F7H3brt5E4eKY+MR51clOzmP3Y1k7HMaNX/"
    "7Z1QdSt89HPvh/UTLhtrmNcZoBWZNn/jr78KwCjhNUVaD7fMnoozUAxIG4ievVleoxvZdyTLEwuTHneqNJZkxrWKcOGDN5Hvc+Vx66LIC8JtR70Gv0SRt9j7"
    "vODyVFhoMQOsTn7f73/muxg5f9f5ltNx9AHMFFUtQk8AONYs9NLjbNlocBiEpUkfwFVLBtoIlBvp7qbJ/plC9SgwNsGKRTgr+UGD0IQZgI1LziRvLvNpwpA7"
    "2wcdiHqisGRn02TEG7wnudK8T3CE2sHuEu/GA2kKTHxOUjCCAUEGCSqGSIb3DQEHAaCCATIEggEuMIIBKjCCASYGCyqGSIb3DQEMCgECoIHvMIHsMFcGCSqG"
    "SIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAjY3byW3k1pZgICCAAwDAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEEB3F6XB4FqxU/ypTrmfSCcYEgZCH8o35"
    "DrzN/1L/Tl11onW1yDREauw3LaYmT6L1+9/pF/QMMOAaZUK5h/3oInCum4l0Sm3vUBMe23BUy0HWlr9hh5AOIvNOxWc8kbVr2Jo/2BOPkqxRZc84QUtdvL3H"
    "/mb48QkE6c+5Iwr8IZWoli7tQfTacwB3T0pAY+yaEGh7FQSp4s6r7gG8eOJH8t6KWp4xJTAjBgkqhkiG9w0BCRUxFgQUixXzwQu8NvQIfjRoiC1LsyZ291Iw"
    "QTAxMA0GCWCGSAFlAwQCAQUABCAKUkPbkwrkZDXCB7CvUSV1yAq66bfQXHzhb84vrhIRWQQIzioKB+kX7BICAggA"
)
ENCRYPTED_KEY_BODY = (
    "MIHsMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAht+fXBTOEEQgICCAAwDAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEEIUOmF706Ak7R4yCthBc"
    "mtIEgZBLP2GHQuQrr2BO111CTWCJc72lVsOhmGkg7lWIUlDiNdtjkiAI9S3/sqm0sqBqPZ2mnl39X5XYItymgLr26BgHZq2eEjynwCEWb21tkZ/mBKX4JF0v"
    "CoX+uO3upffS1/eenWHTKqsUmffu1BIGA3nCgtToFKv7irwdTWL1DVyjeF/Zcpi7V53wfAAM4daUpSo="
)
KEY = pem("PRIVATE KEY", KEY_BODY)
ENCRYPTED_KEY = pem("ENCRYPTED PRIVATE KEY", ENCRYPTED_KEY_BODY)
CERTIFICATE = pem("CERTIFICATE", CERTIFICATE_BODY)

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
OAUTH_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
ASSIGNORS = "org.apache.kafka.clients.consumer."


def refusal(settings: Mapping[str, str]) -> str:
    with pytest.raises(OptionError) as caught:
        translate(settings)
    return str(caught.value)


def accepted_by_librdkafka(settings: Mapping[str, str]) -> bool:
    Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": "0", **settings}).close()
    return True


# --- Which names there are ---------------------------------------------------------------------------------------------------


def properties_of_the_installed_library(folder: Path) -> dict[str, tuple[str, str]]:
    """Name -> (scope, what it takes) of every property of librdkafka that takes text."""
    library = ctypes.CDLL(confluent_kafka.cimpl.__file__)
    libc = ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    libc.fclose.argtypes = library.rd_kafka_conf_properties_show.argtypes = [ctypes.c_void_p]
    file = libc.fopen(os.fsencode(folder / "properties.md"), b"w")
    library.rd_kafka_conf_properties_show(file)
    libc.fclose(file)
    found = {}
    for line in (folder / "properties.md").read_text().splitlines():
        name, scope, allowed, *_ = [cell.strip() for cell in line.split(" | ", 5)] + [""] * 3
        kind = re.search(r"\*Type: ([^*]+)\*", line)
        if kind and name not in found:
            forms = {"boolean": "bool", "integer": allowed.replace(" ", ""), "enum value": allowed.replace(", ", "|")}
            found[name] = (scope, "object" if "API" in kind[1] else forms.get(kind[1], allowed or "text"))
    return found


def test_the_table_of_properties_is_that_of_the_installed_librdkafka(tmp_path: Path) -> None:
    installed = properties_of_the_installed_library(tmp_path)
    assert len(installed) > 150
    ours = {name: spec if spec != "flags" else installed["debug"][1] for name, spec in PROPERTIES.items()}
    theirs = {name: installed[name][1] for name in PROPERTIES if name in installed}
    assert ours == {**theirs, "fetch.min.bytes": "1..100000000"}, "of which it tells another range than it takes"
    assert accepted_by_librdkafka({"fetch.min.bytes": "100000000"})
    with pytest.raises(KafkaException, match=r"outside allowed range 1\.\.100000000"):
        accepted_by_librdkafka({"fetch.min.bytes": "0"})
    assert set(installed["debug"][1].split(", ")) == DEBUG_FLAGS


def test_every_property_of_the_installed_librdkafka_is_taken_or_refused_with_a_reason(tmp_path: Path) -> None:
    installed = properties_of_the_installed_library(tmp_path)
    told = {"C": set(PROPERTIES) | set(RENAMED) | set(REFUSED) | CALLBACKS, "P": PRODUCER_ONLY | CALLBACKS | set(RENAMED)}
    told["*"] = told["C"]
    assert [name for name, (scope, _) in installed.items() if name not in told[scope]] == []


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
    assert (name in PROPERTIES) + (name in RENAMED) + (name in REFUSED) + (name in STRUCTURED) == 1
    assert not any("has no setting of this name" in problem for problem in translation_of({name: "x"}).problems)


# --- What is translated ------------------------------------------------------------------------------------------------------

SASL_SSL = {"security.protocol": "SASL_SSL"}
ALICE = {"security.protocol": "sasl_ssl", "sasl.username": "alice", "sasl.password": "wonder land"}
OIDC = {
    "security.protocol": "sasl_ssl",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.token.endpoint.url": "https://127.0.0.1:1/token",
    "sasl.oauthbearer.client.id": "spark",
    "sasl.oauthbearer.client.secret": "tea party",
}
OIDC_URL = {"sasl.oauthbearer.token.endpoint.url": "https://127.0.0.1:1/token"}

TRANSLATED: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "nothing": ({}, {}),
    "names in any case": ({"Client.ID": "Me", "CLIENT.RACK": "a"}, {"client.id": "Me", "client.rack": "a"}),
    "the same in both": ({"session.timeout.ms": " 6000 "}, {"session.timeout.ms": "6000"}),
    "request timeout": ({"request.timeout.ms": "120000"}, {"socket.timeout.ms": "120000"}),
    "fetch wait": ({"fetch.max.wait.ms": "100"}, {"fetch.wait.max.ms": "100"}),
    "socket buffers": (
        {"receive.buffer.bytes": "65536", "send.buffer.bytes": "-1"},
        {"socket.receive.buffer.bytes": "65536", "socket.send.buffer.bytes": "0"},
    ),
    "connections never idle": ({"connections.max.idle.ms": "-1"}, {"connections.max.idle.ms": "0"}),
    "metadata age is Java's": ({"metadata.max.age.ms": "60000"}, {"topic.metadata.refresh.interval.ms": "60000"}),
    "metadata age beside librdkafka's own": (
        {"metadata.max.age.ms": "60000", "topic.metadata.refresh.interval.ms": "20000"},
        {"metadata.max.age.ms": "60000", "topic.metadata.refresh.interval.ms": "20000"},
    ),
    "booleans and words in any case": (
        {"check.crcs": "True", "isolation.level": "READ_COMMITTED", "group.protocol": "CONSUMER"},
        {"check.crcs": "true", "isolation.level": "read_committed", "group.protocol": "consumer"},
    ),
    "Java's empty defaults": ({"client.rack": "", "client.id": ""}, {}),
    "debug": ({"debug": "cgrp, topic"}, {"debug": "cgrp,topic"}),
    "librdkafka's own aliases": (
        {"fetch.message.max.bytes": "2000000", "metadata.broker.list": "a:1"},
        {"max.partition.fetch.bytes": "2000000", "bootstrap.servers": "a:1"},
    ),
    "both names, one value": (
        {"fetch.max.wait.ms": "100", "fetch.wait.max.ms": "100"},
        {"fetch.wait.max.ms": "100"},
    ),
    "assignor by name": (
        {"partition.assignment.strategy": "Range"},
        {"partition.assignment.strategy": "range"},
    ),
    "assignors by class": (
        {"partition.assignment.strategy": f"{ASSIGNORS}RangeAssignor, {ASSIGNORS}RoundRobinAssignor"},
        {"partition.assignment.strategy": "range,roundrobin"},
    ),
    "shaded assignor": (
        {"partition.assignment.strategy": f"kafkashaded.{ASSIGNORS}CooperativeStickyAssignor"},
        {"partition.assignment.strategy": "cooperative-sticky"},
    ),
    "the broker's assignor": (
        {"group.protocol": "consumer", "group.remote.assignor": "range"},
        {"group.protocol": "consumer", "group.remote.assignor": "range"},
    ),
    "TLS with the system's authorities": (
        {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "HTTPS"},
        {"security.protocol": "ssl", "ssl.endpoint.identification.algorithm": "https"},
    ),
    "no check of the host's name": (
        {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""},
        {"security.protocol": "ssl", "ssl.endpoint.identification.algorithm": "none"},
    ),
    "PEM trust store as text": (
        {"security.protocol": "SSL", "ssl.truststore.type": "pem", "ssl.truststore.certificates": CERTIFICATE},
        {"security.protocol": "ssl", "ssl.ca.pem": CERTIFICATE},
    ),
    "PEM trust store on one line, as Java takes it": (
        {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.certificates": CERTIFICATE.replace("\n", " ")},
        {"security.protocol": "ssl", "ssl.ca.pem": CERTIFICATE},
    ),
    "PEM key store as text": (
        {
            "security.protocol": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": KEY.replace("\n", " "),
            "ssl.keystore.certificate.chain": CERTIFICATE,
        },
        {"security.protocol": "ssl", "ssl.key.pem": KEY, "ssl.certificate.pem": CERTIFICATE},
    ),
    "PEM key with a password": (
        {
            "security.protocol": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": ENCRYPTED_KEY,
            "ssl.key.password": "key-password",
            "ssl.keystore.certificate.chain": CERTIFICATE,
        },
        {
            "security.protocol": "ssl",
            "ssl.key.pem": ENCRYPTED_KEY,
            "ssl.key.password": "key-password",
            "ssl.certificate.pem": CERTIFICATE,
        },
    ),
    "PLAIN by JAAS": (
        {**SASL_SSL, "sasl.mechanism": "PLAIN", "sasl.jaas.config": f'{PLAIN} required username="alice" password="wonder land";'},
        {**ALICE, "sasl.mechanism": "PLAIN"},
    ),
    "PLAIN by JAAS on Databricks": (
        {
            **SASL_SSL,
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f"kafkashaded.{PLAIN} required username='alice' password='wonder land';",
        },
        {**ALICE, "sasl.mechanism": "PLAIN"},
    ),
    "SCRAM by JAAS, over lines, with comments": (
        {
            **SASL_SSL,
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": f'{SCRAM} Required // who\n  username = alice\n /* and */ password="wonder land"\n ;',
        },
        {**ALICE, "sasl.mechanism": "SCRAM-SHA-512"},
    ),
    "SCRAM by librdkafka's names": (
        {**SASL_SSL, "sasl.mechanisms": "scram-sha-256", "sasl.username": "alice", "sasl.password": "wonder land"},
        {**ALICE, "sasl.mechanism": "SCRAM-SHA-256"},
    ),
    "blanks in a password stay": (
        {**SASL_SSL, "sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": " x "},
        {**ALICE, "sasl.mechanism": "PLAIN", "sasl.password": " x "},
    ),
    "OAuth by JAAS": (
        {
            **SASL_SSL,
            **OIDC_URL,
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.login.callback.handler.class": OAUTH_HANDLER,
            "sasl.jaas.config": f'{OAUTH} required clientId="spark" clientSecret="tea party" scope="read" extension_pool="p";',
        },
        {**OIDC, "sasl.oauthbearer.scope": "read", "sasl.oauthbearer.extensions": "pool=p"},
    ),
    "OAuth by the newer settings": (
        {
            **SASL_SSL,
            **OIDC_URL,
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.client.credentials.client.id": "spark",
            "sasl.oauthbearer.client.credentials.client.secret": "tea party",
            "sasl.oauthbearer.jwt.retriever.class": "org.apache.kafka.common.security.oauthbearer.ClientCredentialsJwtRetriever",
            "sasl.jaas.config": f"{OAUTH} required;",
        },
        {**OIDC, "sasl.oauthbearer.grant.type": "client_credentials"},
    ),
    "unsigned tokens": (
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "enable.sasl.oauthbearer.unsecure.jwt": "true",
            "sasl.oauthbearer.config": "principal=admin",
        },
        {
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "OAUTHBEARER",
            "enable.sasl.oauthbearer.unsecure.jwt": "true",
            "sasl.oauthbearer.config": "principal=admin",
        },
    ),
}


@pytest.mark.parametrize(("java", "librdkafka"), TRANSLATED.values(), ids=TRANSLATED)
def test_it_is_translated_and_librdkafka_takes_it(java: dict[str, str], librdkafka: dict[str, str]) -> None:
    assert translate(java) == librdkafka
    assert accepted_by_librdkafka(translate(java))


@pytest.mark.parametrize("more", [{}, {"sasl.jaas.config": f"{OAUTH} required;"}, {"sasl.oauthbearer.config": "region"}])
def test_the_name_of_a_token_callback_is_taken_as_it_is(more: dict[str, str]) -> None:
    settings = translate({**WITH_OAUTH, "oauth_cb": " company.tokens:Kafka.token ", **more})
    more.pop("sasl.jaas.config", None)
    assert settings == {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": "company.tokens:Kafka.token",
        **more,
    }


def test_a_pem_file_serves_as_trust_store_and_as_key_store(tmp_path: Path) -> None:
    file = tmp_path / "all.pem"
    file.write_text(KEY + CERTIFICATE)
    settings = translate(
        {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(file),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(file),
        }
    )
    assert {name for name, value in settings.items() if value == str(file)} == {
        "ssl.ca.location",
        "ssl.key.location",
        "ssl.certificate.location",
    }
    assert accepted_by_librdkafka(settings)


@pytest.mark.parametrize("kind", [{"ssl.keystore.type": "PKCS12"}, {}])
def test_a_pkcs12_key_store_is_taken_as_it_is(tmp_path: Path, kind: dict[str, str]) -> None:
    file = tmp_path / "store.p12"
    file.write_bytes(base64.b64decode(PKCS12_BODY))
    settings = translate(
        {
            "security.protocol": "SSL",
            "ssl.keystore.location": str(file),
            "ssl.keystore.password": "store-password",
            "ssl.key.password": "store-password",
            **kind,
        }
    )
    assert settings == {
        "security.protocol": "ssl",
        "ssl.keystore.location": str(file),
        "ssl.keystore.password": "store-password",
    }
    assert accepted_by_librdkafka(settings)


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1).filter(str.strip))
def test_any_password_survives_the_quotes_of_jaas(password: str) -> None:
    jaas = f"{PLAIN} required username={quoted(password)} password={quoted(password)};"
    settings = translate({**SASL_SSL, "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas})
    assert settings["sasl.password"] == settings["sasl.username"] == password


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (r'"a\tb"', "a\tb"),
        (r'"\101\0601"', "A01"),
        (r'"\q"', "q"),
        ("'it is \"so\"'", 'it is "so"'),
        ('"x;y=z // no comment /* */"', "x;y=z // no comment /* */"),
        ("s3cret-word", "s3cret-word"),
    ],
)
def test_jaas_values_are_read_as_java_reads_them(written: str, meant: str) -> None:
    jaas = f"{PLAIN} required username=u password={written};"
    assert translate({**SASL_SSL, "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas})["sasl.password"] == meant


# --- What is refused ---------------------------------------------------------------------------------------------------------

WITH_PLAIN = {**SASL_SSL, "sasl.mechanism": "PLAIN"}
WITH_OAUTH = {**SASL_SSL, "sasl.mechanism": "OAUTHBEARER"}
TLS = {"security.protocol": "SSL"}

REFUSALS: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "misspelt": ({"sesion.timeout.ms": "1"}, ("kafka.sesion.timeout.ms", "Did you mean kafka.session.timeout.ms")),
    "unheard of": ({"zzz": "value"}, ("kafka.zzz", "no setting of this name")),
    "not a number": ({"session.timeout.ms": "6s"}, ("kafka.session.timeout.ms = '6s'", "from 1 to 3600000")),
    "too large under Java's name": ({"request.timeout.ms": "400000"}, ("kafka.request.timeout.ms = '400000'", "10 to 300000")),
    "not a boolean": ({"check.crcs": "yes"}, ("kafka.check.crcs = 'yes'", "true or false")),
    "no such word": ({"isolation.level": "serializable"}, ("read_uncommitted or read_committed",)),
    "no such debug flag": ({"debug": "cgrp,everything"}, ("kafka.debug", "telemetry")),
    "empty": ({"group.id": "  "}, ("kafka.group.id = '  '", "not empty")),
    "NUL": ({"client.id": "a\0b"}, ("kafka.client.id", "NUL")),
    "half a character": ({"client.id": "a\ud800b"}, ("kafka.client.id", "surrogate")),
    "two names, two values": (
        {"fetch.max.wait.ms": "1", "fetch.wait.max.ms": "2"},
        ("kafka.fetch.wait.max.ms", "kafka.fetch.max.wait.ms", "keep one"),
    ),
    "callback": ({"rebalance_cb": "f"}, ("kafka.rebalance_cb", "function")),
    "producer's": ({"acks": "all"}, ("kafka.acks", "producer")),
    "auto.offset.reset": ({"auto.offset.reset": "earliest"}, ("kafka.auto.offset.reset", "startingOffsets")),
    "deserializer": ({"key.deserializer": "X"}, ("kafka.key.deserializer", "binary")),
    "auto commit": ({"enable.auto.commit": "false"}, ("kafka.enable.auto.commit", "commits the offsets itself")),
    "interceptors": ({"interceptor.classes": "X"}, ("kafka.interceptor.classes", "not safe")),
    "max.poll.records": ({"max.poll.records": "500"}, ("kafka.max.poll.records", "maxOffsetsPerTrigger")),
    "Kerberos settings": ({"sasl.kerberos.service.name": "kafka"}, ("Kerberos is not available", "SCRAM-SHA-512")),
    "Kerberos mechanism": ({**SASL_SSL, "sasl.mechanism": "GSSAPI"}, ("kafka.sasl.mechanism", "Kerberos is not available")),
    "Kerberos login module": (
        {**SASL_SSL, "sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true;"},
        ("kafka.sasl.jaas.config", "Kerberos is not available"),
    ),
    "no such mechanism": ({**SASL_SSL, "sasl.mechanism": "DIGEST-MD5"}, ("kafka.sasl.mechanism", "SCRAM-SHA-256")),
    "no mechanism": (SASL_SSL, ("kafka.sasl.mechanism", "it is missing")),
    "JAAS without mechanism": (
        {**SASL_SSL, "sasl.jaas.config": f'{SCRAM} required username="a" password="b";'},
        ("kafka.sasl.mechanism", "SCRAM-SHA-256 or SCRAM-SHA-512"),
    ),
    "JAAS of another mechanism": (
        {**WITH_PLAIN, "sasl.jaas.config": f'{SCRAM} required username="a" password="b";'},
        ("kafka.sasl.mechanism", "SCRAM-SHA-256 or SCRAM-SHA-512"),
    ),
    "JAAS without semicolon": (
        {**WITH_PLAIN, "sasl.jaas.config": f'{PLAIN} required username="a" password="b"'},
        ("kafka.sasl.jaas.config", "in the form"),
    ),
    "JAAS with an open quote": (
        {**WITH_PLAIN, "sasl.jaas.config": f'{PLAIN} required username="a" password="b;'},
        ("kafka.sasl.jaas.config", "in the form"),
    ),
    "JAAS without password": (
        {**WITH_PLAIN, "sasl.jaas.config": f'{PLAIN} required username="a";'},
        ("kafka.sasl.jaas.config", "no password"),
    ),
    "JAAS and names": (
        {**WITH_PLAIN, "sasl.jaas.config": f'{PLAIN} required username="a" password="b";', "sasl.username": "c"},
        ("kafka.sasl.username", "kafka.sasl.jaas.config sets the same thing"),
    ),
    "somebody's login module": (
        {**WITH_PLAIN, "sasl.jaas.config": "com.example.OurLoginModule required;"},
        ("kafka.sasl.jaas.config", "PlainLoginModule"),
    ),
    "delegation token": (
        {
            **SASL_SSL,
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": f'{SCRAM} required username="a" password="b" tokenauth="true";',
        },
        ("kafka.sasl.jaas.config", "tokenauth"),
    ),
    "user without password": ({**WITH_PLAIN, "sasl.username": "a"}, ("kafka.sasl.password", "it is missing")),
    "credentials without SASL": (
        {"sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": "b"},
        ("kafka.security.protocol", "plaintext", "SASL_SSL"),
    ),
    "authorities without TLS": ({"ssl.ca.location": "/ca.pem"}, ("kafka.security.protocol", "kafka.ssl.ca.location unused")),
    "IAM of MSK": (
        {
            **SASL_SSL,
            "sasl.mechanism": "AWS_MSK_IAM",
            "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
            "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
        },
        ("Amazon MSK", "kafka.oauth_cb=package.module:function", "SCRAM-SHA-512"),
    ),
    "OAuth without a server": (WITH_OAUTH, ("kafka.sasl.oauthbearer.token.endpoint.url", "kafka.oauth_cb=")),
    "OAuth without a client": ({**WITH_OAUTH, **OIDC_URL}, ("kafka.sasl.oauthbearer.client.id", "client.secret")),
    "OAuth from a file": (
        {**WITH_OAUTH, "sasl.oauthbearer.token.endpoint.url": "file:///token"},
        ("kafka.sasl.oauthbearer.token.endpoint.url", "file"),
    ),
    "OAuth by somebody's class": (
        {**WITH_OAUTH, "sasl.login.callback.handler.class": "com.example.Handler"},
        ("kafka.sasl.login.callback.handler.class", "kafka.oauth_cb=package.module:function"),
    ),
    "callback that is no name": (
        {**WITH_OAUTH, "oauth_cb": "lambda _: token()"},
        ("kafka.oauth_cb: ", "package.module:function"),
    ),
    "callback without OAuth": (
        {**WITH_PLAIN, "sasl.username": "a", "sasl.password": "b", "oauth_cb": "a.b:c"},
        ("kafka.oauth_cb: ", "kafka.sasl.mechanism=OAUTHBEARER"),
    ),
    "callback without SASL": ({"oauth_cb": "a.b:c"}, ("kafka.security.protocol: it is plaintext", "kafka.oauth_cb unused")),
    "callback beside a server": (
        {**WITH_OAUTH, **OIDC_URL, "oauth_cb": "a.b:c"},
        ("kafka.sasl.oauthbearer.token.endpoint.url: kafka.oauth_cb gives the tokens",),
    ),
    "callback beside a client": (
        {**WITH_OAUTH, "sasl.jaas.config": f'{OAUTH} required clientId="a" clientSecret="b";', "oauth_cb": "a.b:c"},
        ("kafka.sasl.jaas.config: kafka.oauth_cb gives the tokens",),
    ),
    "unsigned tokens by JAAS": (
        {**WITH_OAUTH, "sasl.jaas.config": f'{OAUTH} required unsecuredLoginStringClaim_sub="admin";'},
        ("kafka.sasl.jaas.config", "kafka.enable.sasl.oauthbearer.unsecure.jwt=true"),
    ),
    "Java trust store": (
        {**TLS, "ssl.truststore.location": "/t.jks", "ssl.truststore.password": "x"},
        ("kafka.ssl.truststore.location", "keytool", "openssl"),
    ),
    "PKCS12 trust store": (
        {**TLS, "ssl.truststore.type": "PKCS12", "ssl.truststore.location": "/t.p12"},
        ("kafka.ssl.truststore.type", "openssl pkcs12"),
    ),
    "PEM trust store with password": (
        {**TLS, "ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca.pem", "ssl.truststore.password": "x"},
        ("kafka.ssl.truststore.password", "no password"),
    ),
    "PEM without its type": (
        {**TLS, "ssl.truststore.certificates": CERTIFICATE},
        ("kafka.ssl.truststore.type", "PEM"),
    ),
    "a file's name for PEM text": (
        {**TLS, "ssl.truststore.type": "PEM", "ssl.truststore.certificates": "/ca.pem"},
        ("kafka.ssl.truststore.certificates", "not the name of a file"),
    ),
    "Java key store": (
        {**TLS, "ssl.keystore.location": "/k.jks", "ssl.keystore.password": "x", "ssl.key.password": "x"},
        ("kafka.ssl.keystore.location", "keytool"),
    ),
    "PKCS12 key store without password": (
        {**TLS, "ssl.keystore.type": "PKCS12", "ssl.keystore.location": "/k.p12"},
        ("kafka.ssl.keystore.password", "it is missing"),
    ),
    "PKCS12 key store with two passwords": (
        {**TLS, "ssl.keystore.location": "/k.p12", "ssl.keystore.password": "x", "ssl.key.password": "y"},
        ("kafka.ssl.key.password", "one password"),
    ),
    "half a PEM key store": (
        {**TLS, "ssl.keystore.type": "PEM", "ssl.keystore.key": KEY},
        ("kafka.ssl.keystore.certificate.chain",),
    ),
    "TLS versions": ({**TLS, "ssl.enabled.protocols": "TLSv1.2"}, ("kafka.ssl.enabled.protocols", "OpenSSL")),
    "Java's cipher suites": (
        {**TLS, "ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"},
        ("kafka.ssl.cipher.suites", "OpenSSL's names"),
    ),
    "eager and cooperative": (
        {"partition.assignment.strategy": f"{ASSIGNORS}RangeAssignor,{ASSIGNORS}CooperativeStickyAssignor"},
        ("kafka.partition.assignment.strategy", "one list"),
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
    "small responses": (
        {"receive.message.max.bytes": "1000000"},
        ("kafka.receive.message.max.bytes", "kafka.fetch.max.bytes"),
    ),
}


@pytest.mark.parametrize(("settings", "told"), REFUSALS.values(), ids=REFUSALS)
def test_it_is_refused_and_the_error_says_what_to_write_instead(settings: dict[str, str], told: tuple[str, ...]) -> None:
    message = refusal(settings)
    assert [fragment for fragment in told if fragment not in message] == []


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_every_refused_setting_is_named_with_its_reason(name: str) -> None:
    assert refusal({name: "x"}) == f"kafka.{name}: {REFUSED[name]}."


@pytest.mark.parametrize(
    "case",
    [
        "IAM of MSK",
        "callback that is no name",
        "callback without OAuth",
        "callback beside a server",
        "Java key store",
        "JAAS without mechanism",
        "somebody's login module",
        "no mechanism",
    ],
)
def test_one_mistake_is_told_once(case: str) -> None:
    assert len(translation_of(REFUSALS[case][0]).problems) == 1


def test_all_mistakes_are_in_one_error() -> None:
    message = refusal({"acks": "all", "session.timeout.ms": "x", "zzz": "1"})
    assert message.startswith("3 options are wrong:")
    assert message.count("\n  - kafka.") == 3


def test_what_librdkafka_would_only_warn_of_is_not_passed_on() -> None:
    for name in sorted(PRODUCER_ONLY):
        assert "producer" in refusal({name: "1"}), name


# --- Secrets -----------------------------------------------------------------------------------------------------------------

SECRETS = sorted(
    name for name in (*PROPERTIES, *RENAMED, *REFUSED, *STRUCTURED, "sasl.passwrod", "pasword", "token") if is_secret(name)
)
SECRET_VALUES = st.text(st.characters(codec="utf-8"), max_size=20).map(lambda text: f"hunter2{text}hunter2")


def test_what_holds_a_secret_is_known_by_its_name() -> None:
    assert set(SECRETS) >= {
        "sasl.jaas.config",
        "sasl.password",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.assertion.private.key.pem",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.key",
        "ssl.keystore.password",
        "ssl.truststore.password",
    }
    assert not is_secret("sasl.oauthbearer.token.endpoint.url")


@given(st.dictionaries(st.sampled_from(SECRETS), SECRET_VALUES, min_size=1), st.sampled_from(sorted(REFUSALS)))
def test_no_secret_is_in_an_error_or_a_repr(secrets: dict[str, str], case: str) -> None:
    translation = translation_of({**REFUSALS[case][0], **secrets})
    assert "hunter2" not in "".join(translation.problems)
    assert "hunter2" not in repr(translation)
    assert "hunter2" not in f"{Settings(secrets)} {Settings(secrets)!r}"


@given(st.text(st.characters(codec="utf-8"), max_size=20), st.sampled_from(["", '"', "'", ";", "\\", "//", "/*"]))
def test_no_part_of_a_wrong_jaas_text_is_in_the_error(text: str, end: str) -> None:
    jaas = f"{PLAIN} required username=hunter2 pass{text}=hunter2{end}"
    assert "hunter2" not in refusal({**SASL_SSL, "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas})


@pytest.mark.parametrize(
    "address",
    [
        "https://me:hunter2@host/token?code=hunter2",
        "https://me:hun?ter2hunter2@host/token",
        "https://me:a://hunter2@host/token",
        "me:hunter2@host:1,other:2",
    ],
)
def test_a_password_in_an_address_is_masked(address: str) -> None:
    settings = Settings({"sasl.oauthbearer.token.endpoint.url": address, "bootstrap.servers": address})
    assert "hunter2" not in repr(settings)
    assert "host" in repr(settings)
    assert settings["bootstrap.servers"] == address


def test_a_long_value_is_cut_in_a_message() -> None:
    assert len(refusal({"check.crcs": "x" * 100_000})) < 500
