"""The tables of settings, compared with the installed librdkafka."""

from __future__ import annotations

from pathlib import Path

from spark_groupsource.kafka_settings.draft import exists
from spark_groupsource.kafka_settings.tables import (
    CALLBACKS,
    CHOICES,
    NAMES,
    PRODUCER_ONLY,
    REFUSED_SETTINGS,
    RENAMED,
)
from tests.support.kafka_settings import properties_of_the_installed_library


def test_every_name_is_one_of_the_installed_librdkafka(tmp_path: Path) -> None:
    installed = properties_of_the_installed_library(tmp_path)
    assert len(installed) > 150
    assert installed.keys() >= NAMES
    assert all(exists(name) for name in NAMES)
    assert {name: "|".join(choices) for name, choices in CHOICES.items()} == {name: installed[name][1] for name in CHOICES}


def test_every_property_of_the_installed_librdkafka_is_taken_or_refused_with_a_reason(tmp_path: Path) -> None:
    installed = properties_of_the_installed_library(tmp_path)
    known = {
        "C": NAMES | set(RENAMED) | set(REFUSED_SETTINGS) | CALLBACKS,
        "P": PRODUCER_ONLY | CALLBACKS | set(RENAMED),
    }
    known["*"] = known["C"]
    assert [name for name, (scope, _) in installed.items() if name not in known[scope]] == []
