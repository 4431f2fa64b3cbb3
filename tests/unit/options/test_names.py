"""The names of options that are refused or misspelt."""

from __future__ import annotations

import difflib
import re

from tests.support.options import BASE, NEEDED, refusal


def test_assign_is_refused_with_its_reason_and_what_to_write_instead() -> None:
    said = refusal({**NEEDED, "assign": "hunter2"})
    assert said.startswith("assign: a consumer group assigns the partitions. Use subscribe ")
    assert 'format("kafka")' in said
    assert "hunter2" not in said


def test_the_nearest_names_are_those_that_a_typist_meant() -> None:
    for name in ("subscribePatern", "startingOffset", "handoff.drainTimeOuts"):
        said = re.search(r"Did you mean (\w[\w.]*)", refusal({**BASE, name: "1"}))
        assert said
        assert difflib.SequenceMatcher(None, said[1].lower(), name.lower()).ratio() > 0.9
