"""docs/api.md against the package: it has every public name, argument and attribute, and nothing else."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path

import spark_groupsource
from spark_groupsource import (
    GroupKafkaDataSource,
    LagListener,
    LagSnapshot,
    await_termination,
    read_properties,
    register,
    stop_gracefully,
)

PAGE = (Path(__file__).parents[3] / "docs" / "api.md").read_text(encoding="utf-8")


def section(name: str) -> str:
    found = re.search(rf"^## `{name}`\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert found is not None, f"no section {name}"
    return found[1]


def rows(text: str) -> list[str]:
    """The first cells of the tables' rows, in order."""
    return re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)


def properties(cls: type) -> list[str]:
    return [name for name, value in vars(cls).items() if isinstance(value, property)]


def test_every_public_name_has_a_section_and_nothing_else_has() -> None:
    assert sorted(re.findall(r"^## `(.+)`$", PAGE, re.MULTILINE)) == sorted(spark_groupsource.__all__)


def test_the_short_name_is_the_formats() -> None:
    assert f"`{GroupKafkaDataSource.name()}`" in section("GroupKafkaDataSource")


def test_the_arguments_and_attributes_are_those_of_the_code() -> None:
    for function in (register, await_termination, stop_gracefully, read_properties):
        assert rows(section(function.__name__)) == list(inspect.signature(function).parameters)
    assert rows(section("LagListener")) == [*inspect.signature(LagListener).parameters, *properties(LagListener)]
    fields = [field.name for field in dataclasses.fields(LagSnapshot)]
    assert rows(section("LagSnapshot")) == [*fields, *properties(LagSnapshot)]


def test_the_example_imports_public_names_only() -> None:
    imported = re.findall(r"^from spark_groupsource(\S*) import (.+)$", PAGE, re.MULTILINE)
    assert imported
    for module, names in imported:
        assert module == ""
        assert set(names.split(", ")) <= set(spark_groupsource.__all__)
