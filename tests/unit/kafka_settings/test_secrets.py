"""No value of a secret setting is in any error or repr."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_groupsource.kafka_settings.secrets import Settings, is_secret
from spark_groupsource.kafka_settings.tables import (
    NAMES,
    REFUSED_SETTINGS,
    RENAMED,
    STRUCTURED,
)
from spark_groupsource.kafka_settings.translation import translation_of
from tests.support.kafka_settings import PLAIN, SASL_SSL, refusal
from tests.unit.kafka_settings.test_translation import REFUSALS

SECRETS = sorted(
    name for name in (*NAMES, *RENAMED, *REFUSED_SETTINGS, *STRUCTURED, "sasl.passwrod", "pasword", "token") if is_secret(name)
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
