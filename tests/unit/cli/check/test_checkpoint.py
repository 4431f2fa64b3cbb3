"""The reader's `checkpointLocation` beside the group."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from spark_groupsource.cli.check import checkpoint
from spark_groupsource.cli.check.checkpoint import NewestBatch, judge_checkpoint, newest_batch, read_checkpoint
from spark_groupsource.cli.check.findings import Level
from spark_groupsource.errors import CheckpointUnreadable
from spark_groupsource.handoff.plan_offset import PlanOffset
from tests.support.check_sources import only, options, source


def plan_of(group: str) -> PlanOffset:
    return PlanOffset.build(stream="5e7", plan=41, generation=1, member="m", group=group, ranges={})


def test_options_without_a_location_have_no_finding() -> None:
    assert not list(read_checkpoint(source()))


@pytest.mark.parametrize(
    ("newest", "level", "named"),
    [
        (None, Level.OK, "has no micro-batch yet (folder offsets)"),
        (NewestBatch(41, (plan_of("billing"),), True), Level.OK, "micro-batch 41 is plan 41 of stream 5e7, and is finished"),
        (NewestBatch(41, (plan_of("a"), plan_of("billing")), False), Level.OK, "plan 41 of stream 5e7, and is not finished"),
        (NewestBatch(41, (), True), Level.WARNING, "has no offset of this source"),
        (NewestBatch(41, (), True, "Too old: do this."), Level.ERROR, "the query would fail. Too old: do this."),
        (NewestBatch(41, (plan_of("b"), plan_of("a")), True), Level.ERROR, "is of group a and b, not of billing"),
    ],
)
def test_the_checkpoint_beside_the_group(newest: NewestBatch | None, level: Level, named: str) -> None:
    found = judge_checkpoint(options(), "checkpointLocation = s3://***@bucket/a", newest)
    assert (found.level, found.check) == (level, "checkpoint")
    assert named in found.text
    assert found.text.startswith("checkpointLocation = s3://***@bucket/a: ")
    of_another = level is not Level.OK and (newest is None or newest.refused is None)
    assert ("Set it to the writer's checkpointLocation" in found.text) is of_another


def test_a_checkpoint_that_cannot_be_read_says_what_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: str) -> None:
        raise CheckpointUnreadable("/data/a cannot be read: no such host.")

    monkeypatch.setattr(checkpoint, "newest_batch", refuse)
    found = only(read_checkpoint(source(checkpointLocation="/data/a")))
    assert found.level is Level.WARNING
    assert found.text.startswith("checkpointLocation = /data/a cannot be read: no such host. Until that is corrected, the claims")


def test_a_password_in_the_location_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "newest_batch", lambda _: None)
    found = only(read_checkpoint(source(checkpointLocation="s3://key:secret@bucket/a")))
    assert found.text.startswith("checkpointLocation = s3://***@bucket/a: has no micro-batch yet")


def test_the_newest_micro_batch_is_read_from_the_logs(tmp_path: Path) -> None:
    assert newest_batch(str(tmp_path)) is None
    (tmp_path / "offsets").mkdir()
    assert newest_batch(str(tmp_path)) is None
    for number in (9, 10):
        lines = ["v1", "{}", '{"orders":{"0":5}}', json.dumps(plan_of(f"group-{number}").to_json())]
        (tmp_path / "offsets" / str(number)).write_text("\n".join(lines))
    assert newest_batch(f"file:{tmp_path}") == NewestBatch(10, (plan_of("group-10"),), False)
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "10").write_text("v1\n{}")
    assert newest_batch(str(tmp_path)) == NewestBatch(10, (plan_of("group-10"),), True)


@pytest.mark.parametrize("version", [3, 5])
def test_the_newest_micro_batch_of_another_version_is_known_as_that(tmp_path: Path, version: int) -> None:
    (tmp_path / "offsets").mkdir()
    offset = {**plan_of("billing").to_json(), "v": version}
    (tmp_path / "offsets" / "7").write_text("\n".join(["v1", "{}", "-", '{"v":{"0":5}}', '{"v":3}', json.dumps(offset)]))
    newest = newest_batch(str(tmp_path))
    assert newest is not None
    assert newest.plans == ()
    assert f"another version of spark_groupsource wrote format {version} there" in str(newest.refused)


def test_a_file_system_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    late = threading.Event()

    def hang(_: str) -> None:
        late.wait(60)

    monkeypatch.setattr(checkpoint, "newest_batch", hang)
    monkeypatch.setattr(checkpoint, "CHECK_STEP_S", 0.05)
    found = only(read_checkpoint(source(checkpointLocation="hdfs://host/a")))
    late.set()
    assert found.level is Level.WARNING
    assert "hdfs://host/a did not answer within 0 s" in found.text
