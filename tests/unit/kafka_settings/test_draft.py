"""A translation in progress: what is taken, what is put, and which mistakes are found once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spark_groupsource.kafka_settings.draft import Draft, refusal
from spark_groupsource.kafka_settings.tables import (
    NAMES,
)
from tests.support.kafka_settings import properties_of_the_installed_library


def test_what_is_taken_is_no_longer_given() -> None:
    draft = Draft({"linger.ms": "5"})
    assert draft.take("linger.ms") == "5"
    assert draft.take("linger.ms") is None
    assert draft.given == {}


@pytest.mark.parametrize(
    ("name", "value", "read"),
    [
        ("enable.partition.eof", " TRUE ", "true"),
        ("enable.partition.eof", "0", "false"),
        ("group.id", "TRUE", "TRUE"),
        ("sasl.password", " a b ", " a b "),
        ("security.protocol", "SASL_SSL", "sasl_ssl"),
    ],
)
def test_a_value_is_put_in_the_form_of_librdkafka(name: str, value: str, read: str) -> None:
    draft = Draft({})
    draft.put(name, value, "theirs")
    assert (draft.settings, draft.sources, draft.problems) == ({name: read}, {name: "theirs"}, [])


def test_two_settings_may_not_put_another_value() -> None:
    draft = Draft({})
    draft.put("group.id", "a", "group.id")
    draft.put("group.id", "a", "group.id")
    assert draft.problems == []
    draft.put("group.id", "b", "other")
    assert draft.problems == ["kafka.other: kafka.group.id sets the same thing to a different value; remove one of them."]
    assert draft.has_mistake("oth")
    assert not draft.has_mistake("group")
    assert draft.settings == {"group.id": "a"}


def test_librdkafkas_limits_are_kept_and_a_number_that_it_would_misread_is_refused(tmp_path: Path) -> None:
    for name, (_, allowed) in properties_of_the_installed_library(tmp_path).items():
        limits = re.fullmatch(r"(-?\d+)\.\.(\d+)", allowed)
        if name not in NAMES or limits is None or name == "fetch.min.bytes":  # librdkafka documents another range for it
            continue
        low, high = int(limits[1]), int(limits[2])
        assert refusal(name, str(low)) is refusal(name, str(high)) is None
        assert f"outside allowed range {low}..{high}" in str(refusal(name, str(low - 1))), name
        for misread in (f"{high}s", "1.5", "0x10", str(2**32 + high), ""):
            assert refusal(name, misread), (name, misread)
