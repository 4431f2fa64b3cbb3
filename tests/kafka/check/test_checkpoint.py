"""`groupkafka check`: the reader's checkpointLocation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from spark_groupsource.handoff.plan_offset import PlanOffset
from tests.conftest import MakeTopic
from tests.kafka.check.conftest import Check, query


def test_the_checkpoint_of_a_query_is_found_and_that_of_another_group_is_an_error(
    topic: MakeTopic, check: Check, plain: Mapping[str, str], tmp_path: Path
) -> None:
    name, location = topic(), tmp_path / "checkpoint"
    new = check(query(name, plain, checkpointLocation=str(location)))
    assert (new.exit_code, new.level("checkpoint")) == (0, "ok")
    assert f"checkpointLocation = {location}: has no micro-batch yet" in new.of("checkpoint")[0][2]
    (location / "offsets").mkdir(parents=True)
    for group in (name, "another"):
        offset = PlanOffset.build(stream="5e7", plan=3, generation=1, member="m", group=group, ranges={})
        (location / "offsets" / "0").write_text(f"v1\n{{}}\n{json.dumps(offset.to_json())}")
        found = check(query(name, plain, checkpointLocation=f"file:{location}"))
        if group == name:
            assert (found.exit_code, found.level("checkpoint")) == (0, "ok")
            assert "micro-batch 0 is plan 3 of stream 5e7, and is not finished" in found.of("checkpoint")[0][2]
        else:
            assert (found.exit_code, found.level("checkpoint")) == (1, "error")
            assert f"is of group another, not of {name}. The query would fail" in found.of("checkpoint")[0][2]


@pytest.mark.parametrize("location", ["there-is-no-such-scheme://user:hunter2@host/a", "{tmp}/file"])
def test_a_checkpoint_that_cannot_be_read_is_a_warning_and_shows_no_password(
    topic: MakeTopic, check: Check, plain: Mapping[str, str], tmp_path: Path, location: str
) -> None:
    (tmp_path / "file").mkdir()
    (tmp_path / "file" / "offsets").write_text("not a folder")
    found = check(query(topic(), plain, checkpointLocation=location.format(tmp=tmp_path)))
    assert (found.exit_code, found.level("checkpoint")) == (0, "warning")
    assert "cannot be read: " in found.of("checkpoint")[0][2]
    assert "The location must be readable on the driver's machine." in found.of("checkpoint")[0][2]
    assert "hunter2" not in found.output
