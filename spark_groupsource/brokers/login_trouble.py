"""Recognizes connection, TLS, login and ACL errors, and names the setting or ACL to check.

librdkafka has few codes for these errors: a broken connection has the same code whether the cause is permanent or temporary. So
this module also checks the error messages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from confluent_kafka import KafkaError


class LoginTrouble(NamedTuple):
    """A reason why a connection fails."""

    check: str
    """A sentence that names the setting to check."""
    final: bool
    """Whether the reason is permanent, so that waiting does not help."""


_CERTIFICATE = LoginTrouble(
    "Check kafka.ssl.truststore.*: the trust store needs the root certificate of the authority that signed the brokers' "
    "certificates; an intermediate one alone is not enough. Without a trust store, the client trusts the operating system's "
    "authorities, not the JVM's (cacerts). Also check that each broker's certificate contains the host name that is in "
    "kafka.bootstrap.servers and in the broker's advertised.listeners.",
    final=True,
)
_OWN_CERTIFICATE = LoginTrouble(
    "Check kafka.ssl.keystore.*: the broker requires a client certificate that is signed by an authority that it trusts.",
    final=True,
)
_PROTOCOL = LoginTrouble(
    "Check kafka.security.protocol: the listener at kafka.bootstrap.servers may use a different protocol.", final=False
)
_MECHANISM = LoginTrouble(
    "Check kafka.sasl.mechanism and kafka.security.protocol: the listener at kafka.bootstrap.servers expects different values.",
    final=True,
)
_TOKEN = LoginTrouble(
    "Check kafka.sasl.oauthbearer.token.endpoint.url, kafka.sasl.oauthbearer.client.id and kafka.sasl.oauthbearer.client.secret.",
    final=True,
)
_TOKEN_SERVER = LoginTrouble(
    "Check kafka.sasl.oauthbearer.token.endpoint.url and the network between this machine and that server. The client asks the "
    "server again every 10 s.",
    final=False,
)
_OWN_TOKEN = LoginTrouble("Check the function that kafka.oauth_cb names; the log shows what went wrong.", final=False)
_PASSWORD = LoginTrouble(
    "Check kafka.sasl.username and kafka.sasl.password, or kafka.sasl.jaas.config; with OAUTHBEARER, check the token.", final=True
)
OUT_OF_DESCRIPTORS = LoginTrouble(
    "This process has no file descriptors left, so it cannot connect. Raise the limit on open files (ulimit -n) for the "
    "executors or the driver.",
    final=False,
)
_TLS = LoginTrouble("Check kafka.security.protocol and kafka.ssl.*.", final=True)

_BY_TEXT = (
    (re.compile(r"Too many open files"), OUT_OF_DESCRIPTORS),
    (re.compile(r"certificate verify failed"), _CERTIFICATE),
    (re.compile(r"alert (bad certificate|certificate|unknown ca|handshake failure|access denied)"), _OWN_CERTIFICATE),
    (
        re.compile(r"connecting to a PLAINTEXT broker listener|Disconnected.* in state SSL_HANDSHAKE|wrong version number"),
        _PROTOCOL,
    ),
    # A server that is not a Kafka broker has answered, and librdkafka parsed its text as a number.
    (re.compile(r"Invalid response size .* in state APIVERSION_QUERY"), _PROTOCOL),
    (re.compile(r"mechanism handshake failed"), _MECHANISM),
    # The messages from the native reader and from confluent-kafka.
    (re.compile(r"acquire SASL OAUTHBEARER token: (kafka\.oauth_cb|OAuth callback)"), _OWN_TOKEN),
    # The messages from libcurl. After a 429 or 5xx response, librdkafka retries for up to 50 s.
    (re.compile(r"acquire SASL OAUTHBEARER token: .*(connect to|resolve|timed? ?out|Timeout|reset by peer)"), _TOKEN_SERVER),
    (re.compile(r"acquire SASL OAUTHBEARER token"), _TOKEN),
)
_BY_CODE: Mapping[int, LoginTrouble] = {
    KafkaError._AUTHENTICATION: _PASSWORD,
    KafkaError.SASL_AUTHENTICATION_FAILED: _PASSWORD,
    KafkaError.UNSUPPORTED_SASL_MECHANISM: _MECHANISM,
    KafkaError._SSL: _TLS,
    # For a refused or broken connection librdkafka also reports a more specific code, unless the broker closes the connection
    # without an answer, as a broker does when it cannot read the first request.
    KafkaError._ALL_BROKERS_DOWN: _PROTOCOL,
}

MISSING_ACL: Mapping[int, str] = {
    KafkaError.GROUP_AUTHORIZATION_FAILED: (
        "The user needs the READ ACL on the group (kafka.group.id). A sink's groups begin with transactionalIdPrefix."
    ),
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "The user needs the READ ACL on the topic, which includes DESCRIBE.",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "The user lacks an ACL on the cluster.",
}
"""The missing ACL, by error code."""


def login_trouble(error: KafkaError) -> LoginTrouble | None:
    """Return the reason for a connection, TLS or login error, or `None` for any other error."""
    by_text = (trouble for pattern, trouble in _BY_TEXT if pattern.search(error.str()))
    return next(by_text, None) or _BY_CODE.get(error.code())


def lacks_token(error: KafkaError) -> bool:
    """Return whether this error means that a client has no login token now but will ask for one again."""
    return login_trouble(error) in (_OWN_TOKEN, _TOKEN_SERVER)


def is_refused(error: KafkaError) -> bool:
    """Return whether this error means that the brokers refuse the client permanently."""
    trouble = login_trouble(error)
    return trouble is not None and trouble.final


def token_refused(error: KafkaError) -> bool:
    """Return whether this error means that the brokers refuse the client's password or token."""
    return login_trouble(error) is _PASSWORD
