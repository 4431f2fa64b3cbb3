"""Not let in, or not allowed: which of these an error tells, and which setting or ACL to look at.

librdkafka has few codes for this, and one of them, a broken connection, for what never mends as well as for what does:
its texts tell more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from confluent_kafka import KafkaError


class LoginTrouble(NamedTuple):
    """Why a connection does not come about: what to look at, and whether it never mends by waiting."""

    check: str
    final: bool


_CERTIFICATE = LoginTrouble(
    "Check kafka.ssl.truststore.*: it needs the authority that has signed the brokers' certificates; and that each broker's "
    "certificate has its name as kafka.bootstrap.servers and its advertised.listeners have it.",
    final=True,
)
_OWN_CERTIFICATE = LoginTrouble(
    "Check kafka.ssl.keystore.*: the broker asks for a client certificate that an authority it trusts has signed.", final=True
)
_PROTOCOL = LoginTrouble(
    "Check kafka.security.protocol: it may not be the one of the listener at kafka.bootstrap.servers.", final=False
)
_MECHANISM = LoginTrouble(
    "Check kafka.sasl.mechanism and kafka.security.protocol: the listener at kafka.bootstrap.servers has others.", final=True
)
_TOKEN = LoginTrouble(
    "Check kafka.sasl.oauthbearer.token.endpoint.url, kafka.sasl.oauthbearer.client.id and kafka.sasl.oauthbearer.client.secret.",
    final=True,
)
_PASSWORD = LoginTrouble(
    "Check kafka.sasl.username and kafka.sasl.password, or kafka.sasl.jaas.config; with OAUTHBEARER, the token.", final=True
)
_TLS = LoginTrouble("Check kafka.security.protocol and kafka.ssl.*.", final=True)

_BY_TEXT = (
    (re.compile(r"certificate verify failed"), _CERTIFICATE),
    (re.compile(r"alert (bad certificate|certificate|unknown ca|handshake failure|access denied)"), _OWN_CERTIFICATE),
    (
        re.compile(r"connecting to a PLAINTEXT broker listener|Disconnected.* in state SSL_HANDSHAKE|wrong version number"),
        _PROTOCOL,
    ),
    (re.compile(r"mechanism handshake failed"), _MECHANISM),
    (re.compile(r"acquire SASL OAUTHBEARER token"), _TOKEN),
)
_BY_CODE: Mapping[int, LoginTrouble] = {
    KafkaError._AUTHENTICATION: _PASSWORD,
    KafkaError.SASL_AUTHENTICATION_FAILED: _PASSWORD,
    KafkaError.UNSUPPORTED_SASL_MECHANISM: _MECHANISM,
    KafkaError._SSL: _TLS,
    # Of a refused or broken connection librdkafka tells more than that, but not when the broker closes it without a word, as
    # it does when it cannot read the first request.
    KafkaError._ALL_BROKERS_DOWN: _PROTOCOL,
}

MISSING_ACL: Mapping[int, str] = {
    KafkaError.GROUP_AUTHORIZATION_FAILED: "The user needs the ACL READ on the group (kafka.group.id).",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "The user needs the ACL READ on the topic, which DESCRIBE comes with.",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "The user lacks an ACL on the cluster.",
}
"""What is missing, by the code of the refusal."""


def login_trouble(error: KafkaError) -> LoginTrouble | None:
    """What an error tells of TLS or of the login; `None` for an error of another kind."""
    by_text = (trouble for pattern, trouble in _BY_TEXT if pattern.search(error.str()))
    return next(by_text, None) or _BY_CODE.get(error.code())


def is_refused(error: KafkaError) -> bool:
    """Whether the client is not let in, and waiting does not change that."""
    trouble = login_trouble(error)
    return trouble is not None and trouble.final
