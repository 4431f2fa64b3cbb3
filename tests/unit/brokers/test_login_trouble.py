"""What librdkafka's texts say of TLS and of logins; they were noted from librdkafka 2.16 against a real broker."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from spark_groupsource.brokers.login_trouble import is_refused, lacks_token, login_trouble, token_refused
from spark_groupsource.fetch.refusals import refusal

SAID = [
    (
        "_SSL",
        "SSL handshake failed: error:0A000086:SSL routines::certificate verify failed: broker certificate",
        "ssl.truststore",
        1,
    ),
    (
        "_TRANSPORT",
        "error:0A000086:SSL routines::certificate verify failed (after 1ms in state SSL_HANDSHAKE)",
        "ssl.truststore",
        1,
    ),
    ("_TRANSPORT", "Receive failed: error:0A000412:SSL routines::ssl/tls alert bad certificate: SSL alert", "ssl.keystore", 1),
    ("_TRANSPORT", "SSL handshake failed: Disconnected: connecting to a PLAINTEXT broker listener?", "security.protocol", 0),
    ("_TRANSPORT", "Disconnected: SSL connection closed by peer (after 3ms in state SSL_HANDSHAKE)", "security.protocol", 0),
    ("_ALL_BROKERS_DOWN", "1/1 brokers are down", "security.protocol", 0),
    ("_BAD_MSG", "Invalid response size 1008813135 (0..3) (after 0ms in state APIVERSION_QUERY)", "security.protocol", 0),
    ("_AUTHENTICATION", "SASL authentication error: Authentication failed: Invalid username or password", "sasl.password", 1),
    ("_AUTHENTICATION", 'SASL authentication error: {"status":"invalid_token"}', "the token", 1),
    ("_AUTHENTICATION", "SASL PLAIN mechanism handshake failed: broker's supported mechanisms: ", "kafka.sasl.mechanism", 1),
    ("_AUTHENTICATION", 'Failed to acquire SASL OAUTHBEARER token: {"error":"invalid_client"}', "oauthbearer.client.secret", 1),
    ("_AUTHENTICATION", "Failed to acquire SASL OAUTHBEARER token: Failed to connect to h:1: Could not", "token.endpoint.url", 0),
    ("_AUTHENTICATION", "Failed to acquire SASL OAUTHBEARER token: Could not resolve host: nowhere", "token.endpoint.url", 0),
    ("_AUTHENTICATION", "Failed to acquire SASL OAUTHBEARER token: Operation timed out after 20000 ms", "token.endpoint.url", 0),
    ("_AUTHENTICATION", "Failed to acquire SASL OAUTHBEARER token: OAuth callback raised exception", "kafka.oauth_cb", 0),
    ("_AUTHENTICATION", "Failed to acquire SASL OAUTHBEARER token: kafka.oauth_cb: the function raised E", "kafka.oauth_cb", 0),
]


@pytest.mark.parametrize(("code", "text", "setting", "final"), SAID)
def test_each_text_leads_to_the_setting(code: str, text: str, setting: str, final: int) -> None:
    error = KafkaError(getattr(KafkaError, code), text)
    trouble = login_trouble(error)
    assert trouble is not None
    assert setting in trouble.check
    assert is_refused(error) == bool(final)


@pytest.mark.parametrize(
    "text", ["Connect to ipv4#127.0.0.1:1 failed: Connection refused", "Disconnected: connection closed by peer (in state UP)"]
)
def test_a_broken_connection_is_no_matter_of_the_login(text: str) -> None:
    assert login_trouble(KafkaError(KafkaError._TRANSPORT, text)) is None


@pytest.mark.parametrize(
    ("text", "lacks", "refused"),
    [
        ("Failed to acquire SASL OAUTHBEARER token: Failed to connect to h:1: Could not", True, False),
        ("Failed to acquire SASL OAUTHBEARER token: OAuth callback raised exception", True, False),
        ('Failed to acquire SASL OAUTHBEARER token: {"error":"invalid_client"}', False, False),
        ('SASL authentication error: {"status":"invalid_token"}', False, True),
    ],
)
def test_a_token_that_is_not_there_yet_is_not_one_that_the_brokers_refuse(text: str, lacks: bool, refused: bool) -> None:
    error = KafkaError(KafkaError._AUTHENTICATION, text)
    assert (lacks_token(error), token_refused(error)) == (lacks, refused)
    assert (refusal(error, "Reading orders-0 [0, 10)") is None) == lacks
