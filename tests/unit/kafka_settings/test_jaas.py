"""The text of `sasl.jaas.config`: read as Java reads it."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_groupsource.kafka_settings.translation import translate
from tests.support.kafka_settings import PLAIN, WITH_PLAIN, jaas


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
