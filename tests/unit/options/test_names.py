"""The names of options that are refused or misspelt."""

from __future__ import annotations

import difflib
import re

import pytest

from spark_groupsource.options.names import REFUSED_OPTIONS
from tests.support.options import BASE, NEEDED, refusal


@pytest.mark.parametrize("name", sorted(REFUSED_OPTIONS))
def test_every_refused_option_is_named_once_with_its_reason(name: str) -> None:
    options = {**(NEEDED if name == "assign" else BASE), name: "hunter2"}
    assert refusal(options) == f"{name}: {REFUSED_OPTIONS[name]}."


def test_the_nearest_names_are_those_that_a_typist_meant() -> None:
    for name in ("subscribePatern", "startingOffset", "handoff.drainTimeOuts"):
        said = re.search(r"Did you mean (\w[\w.]*)", refusal({**BASE, name: "1"}))
        assert said
        assert difflib.SequenceMatcher(None, said[1].lower(), name.lower()).ratio() > 0.9
