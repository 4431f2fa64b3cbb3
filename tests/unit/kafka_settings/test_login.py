"""Logins: Java's settings of SASL, JAAS and OAuth become librdkafka's, or an error says what to write instead."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_groupsource.kafka_settings.translation import translate
from tests.support.kafka_settings import OAUTH, PLAIN, SASL_SSL, WITH_OAUTH, WITH_PLAIN, jaas

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"

OAUTH_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"


# --- What is translated ------------------------------------------------------------------------------------------------------

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

UNSIGNED = {
    "sasl.mechanism": "OAUTHBEARER",
    "enable.sasl.oauthbearer.unsecure.jwt": "true",
    "sasl.oauthbearer.config": "principal=admin",
}

TRANSLATED: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "PLAIN by JAAS on Databricks": (
        {**WITH_PLAIN, **jaas(f"kafkashaded.{PLAIN}", "username='alice' password='wonder land'")},
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
    "OAuth by JAAS": (
        {
            **WITH_OAUTH,
            **OIDC_URL,
            "sasl.login.callback.handler.class": OAUTH_HANDLER,
            **jaas(OAUTH, 'clientId="spark" clientSecret="tea party" scope="read" extension_pool="p"'),
        },
        {**OIDC, "sasl.oauthbearer.scope": "read", "sasl.oauthbearer.extensions": "pool=p"},
    ),
    "OAuth by the newer settings": (
        {
            **WITH_OAUTH,
            **OIDC_URL,
            "sasl.oauthbearer.client.credentials.client.id": "spark",
            "sasl.oauthbearer.client.credentials.client.secret": "tea party",
            "sasl.oauthbearer.jwt.retriever.class": "org.apache.kafka.common.security.oauthbearer.ClientCredentialsJwtRetriever",
            **jaas(OAUTH),
        },
        {**OIDC, "sasl.oauthbearer.grant.type": "client_credentials"},
    ),
    "an OAuth server, in capitals": (
        {**OIDC, **OIDC_URL, **WITH_OAUTH, "sasl.oauthbearer.method": "OIDC"},
        OIDC,
    ),
    "unsigned tokens": (
        {"security.protocol": "SASL_PLAINTEXT", **UNSIGNED},
        {"security.protocol": "sasl_plaintext", **UNSIGNED},
    ),
}


@pytest.mark.parametrize("more", [{}, jaas(OAUTH), {"sasl.oauthbearer.config": "region"}])
def test_the_name_of_a_token_callback_is_taken_as_it_is(more: dict[str, str]) -> None:
    settings = translate({**WITH_OAUTH, "oauth_cb": " company.tokens:Kafka.token ", **more})
    more.pop("sasl.jaas.config", None)
    assert settings == {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": "company.tokens:Kafka.token",
        **more,
    }


# --- What is refused ---------------------------------------------------------------------------------------------------------

REFUSALS: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "Kerberos mechanism": ({**SASL_SSL, "sasl.mechanism": "GSSAPI"}, ("kafka.sasl.mechanism", "Kerberos is not available")),
    "Kerberos login module": (
        {**SASL_SSL, **jaas("com.sun.security.auth.module.Krb5LoginModule", "useKeyTab=true")},
        ("kafka.sasl.jaas.config", "Kerberos is not available"),
    ),
    "no such mechanism": ({**SASL_SSL, "sasl.mechanism": "DIGEST-MD5"}, ("kafka.sasl.mechanism", "SCRAM-SHA-256")),
    "no mechanism": (SASL_SSL, ("kafka.sasl.mechanism", "it is missing")),
    "JAAS without mechanism": (
        {**SASL_SSL, **jaas(SCRAM, 'username="a" password="b"')},
        ("kafka.sasl.mechanism", "SCRAM-SHA-256 or SCRAM-SHA-512"),
    ),
    "JAAS of another mechanism": (
        {**WITH_PLAIN, **jaas(SCRAM, 'username="a" password="b"')},
        ("kafka.sasl.mechanism", "SCRAM-SHA-256 or SCRAM-SHA-512"),
    ),
    "JAAS without semicolon": (
        {**WITH_PLAIN, "sasl.jaas.config": f'{PLAIN} required username="a" password="b"'},
        ("kafka.sasl.jaas.config", "in the form"),
    ),
    "JAAS without password": ({**WITH_PLAIN, **jaas(PLAIN, 'username="a"')}, ("kafka.sasl.jaas.config", "no password")),
    "JAAS and names": (
        {**WITH_PLAIN, **jaas(PLAIN, 'username="a" password="b"'), "sasl.username": "c"},
        ("kafka.sasl.username", "kafka.sasl.jaas.config sets the same thing to a different value"),
    ),
    "somebody's login module": (
        {**WITH_PLAIN, **jaas("com.example.OurLoginModule")},
        ("kafka.sasl.jaas.config", "PlainLoginModule"),
    ),
    "delegation token": (
        {**SASL_SSL, "sasl.mechanism": "SCRAM-SHA-512", **jaas(SCRAM, 'username="a" password="b" tokenauth="true"')},
        ("kafka.sasl.jaas.config", "tokenauth"),
    ),
    "user without password": ({**WITH_PLAIN, "sasl.username": "a"}, ("kafka.sasl.password", "it is missing")),
    "credentials without SASL": (
        {"sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": "b"},
        ("kafka.security.protocol", "plaintext", "SASL_SSL"),
    ),
    "IAM of MSK": (
        {
            **SASL_SSL,
            "sasl.mechanism": "AWS_MSK_IAM",
            **jaas("software.amazon.msk.auth.iam.IAMLoginModule"),
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
    "callback without SASL": (
        {"oauth_cb": "a.b:c"},
        ("kafka.security.protocol: it is plaintext", "kafka.oauth_cb would have no effect"),
    ),
    "callback beside a server": (
        {**WITH_OAUTH, **OIDC_URL, "oauth_cb": "a.b:c"},
        ("kafka.sasl.oauthbearer.token.endpoint.url: kafka.oauth_cb provides the tokens",),
    ),
    "unsigned tokens by JAAS": (
        {**WITH_OAUTH, **jaas(OAUTH, 'unsecuredLoginStringClaim_sub="admin"')},
        ("kafka.sasl.jaas.config", "kafka.enable.sasl.oauthbearer.unsecure.jwt=true"),
    ),
}


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@example("TRUE")
@example("False")
@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1).filter(str.strip))
def test_any_password_survives_the_quotes_of_jaas(password: str) -> None:
    settings = translate({**WITH_PLAIN, **jaas(PLAIN, f"username={quoted(password)} password={quoted(password)}")})
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
    assert translate({**WITH_PLAIN, **jaas(PLAIN, f"username=u password={written}")})["sasl.password"] == meant
