"""Whether a plan is in the commit log, as the files of a checkpoint say it at each moment of a micro-batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_groupsource.checkpoint.durable_plans import DurablePlans
from spark_groupsource.errors import CheckpointOfAnotherStream, OffsetError
from tests.support.checkpoints import OTHER, STREAM, Checkpoint


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint(tmp_path)


@pytest.fixture
def looking(checkpoint: Checkpoint) -> DurablePlans:
    return DurablePlans(str(checkpoint.folder))


def test_each_plan_is_durable_once_its_own_micro_batch_is_in_the_commit_log(
    checkpoint: Checkpoint, looking: DurablePlans
) -> None:
    assert looking.locate(STREAM, 0) is None, "there is no offset log"
    for plan, batch in enumerate((5, 6, 7)):
        assert not looking.is_durable(STREAM, plan), "it is not in the offset log"
        checkpoint.log(batch, plan)
        assert looking.locate(STREAM, plan) == batch
        assert not looking.is_durable(STREAM, plan), "the micro-batch before it is in the commit log, and this one is not"
        checkpoint.commit(batch)
        assert looking.is_durable(STREAM, plan)


def test_a_plan_that_the_newest_micro_batch_does_not_have_is_not_durable(checkpoint: Checkpoint, looking: DurablePlans) -> None:
    """The plan is in the log of the writer, and this is an older copy of it."""
    checkpoint.log(5, 4)
    checkpoint.commit(5)
    assert looking.locate(STREAM, 5) is None
    assert looking.locate(STREAM, 3) is None
    assert not looking.is_durable(STREAM, 5)
    assert looking.is_durable(STREAM, 4)
    checkpoint.log(6, 4)
    assert looking.locate(STREAM, 5) is None, "a micro-batch without new records of this source"


def test_a_plan_of_another_stream_with_the_same_number_is_not_durable(checkpoint: Checkpoint, looking: DurablePlans) -> None:
    checkpoint.log(5, 4)
    checkpoint.commit(5)
    assert looking.is_durable(STREAM, 4)
    assert looking.locate(OTHER, 4) is None, "at the first look"
    with pytest.raises(CheckpointOfAnotherStream):
        looking.locate(OTHER, 4)


def test_a_commit_that_is_empty_is_still_being_written(checkpoint: Checkpoint, looking: DurablePlans) -> None:
    checkpoint.log(5, 4)
    checkpoint.commit(5)
    written = checkpoint.folder / "commits" / "5"
    written.write_text("")
    assert not looking.is_durable(STREAM, 4)


class TestAFileOfTheOffsetLogThatSeemsToBeWrong:
    def test_may_be_half_written_wherever_it_ends(self, checkpoint: Checkpoint) -> None:
        """The source of another stream stands before this one."""
        checkpoint.log(9, 1, stream=OTHER)
        theirs = checkpoint.read(9)
        checkpoint.log(9, 0)
        whole = f"{theirs}\n{checkpoint.read(9).splitlines()[3]}"
        for length in range(len(whole)):
            looking = DurablePlans(str(checkpoint.folder))
            checkpoint.replace(9, whole[:length])
            assert looking.locate(STREAM, 0) is None
            checkpoint.replace(9, whole)
            assert looking.locate(STREAM, 0) == 9
            assert not looking.in_doubt

    def test_may_be_half_written_after_a_micro_batch_that_was_whole(self, checkpoint: Checkpoint, looking: DurablePlans) -> None:
        checkpoint.log(8, 0)
        assert looking.locate(STREAM, 0) == 8
        checkpoint.log(9, 1)
        whole = checkpoint.read(9)
        for half in ("", "v", whole[: len(whole) // 2], whole):
            checkpoint.replace(9, half)
            assert looking.locate(STREAM, 1) == (9 if half == whole else None)

    def test_is_believed_at_the_second_look(self, checkpoint: Checkpoint, looking: DurablePlans) -> None:
        checkpoint.log(9, 0, stream=OTHER)
        assert looking.locate(STREAM, 0) is None
        assert looking.in_doubt
        with pytest.raises(CheckpointOfAnotherStream, match=f"stream {OTHER}, but this query is stream {STREAM}"):
            looking.locate(STREAM, 0)

    def test_is_believed_although_the_other_query_has_gone_on(self, checkpoint: Checkpoint, looking: DurablePlans) -> None:
        checkpoint.log(9, 0, stream=OTHER)
        assert looking.locate(STREAM, 0) is None
        checkpoint.log(10, 1, stream=OTHER)
        with pytest.raises(CheckpointOfAnotherStream):
            looking.locate(STREAM, 0)

    def test_is_not_believed_when_it_was_deleted_meanwhile(self, checkpoint: Checkpoint, looking: DurablePlans) -> None:
        checkpoint.log(9, 0, stream=OTHER)
        assert looking.locate(STREAM, 0) is None
        (checkpoint.folder / "offsets" / "9").unlink()
        checkpoint.log(10, 0)
        assert looking.locate(STREAM, 0) == 10
        assert not looking.in_doubt

    def test_is_not_believed_while_it_is_empty_or_without_a_source_of_this_package(
        self, checkpoint: Checkpoint, looking: DurablePlans
    ) -> None:
        for text in ("", "\n", "v1\n{}\n-", 'v1\n{}\n{"orders":{"0":7}}'):
            checkpoint.replace(9, text)
            assert [looking.locate(STREAM, 0) for _ in range(3)] == [None] * 3
            assert not looking.in_doubt

    def test_may_be_of_a_newer_version_of_spark(self, checkpoint: Checkpoint, looking: DurablePlans) -> None:
        checkpoint.replace(9, "v3\n{}\n-")
        assert looking.locate(STREAM, 0) is None
        with pytest.raises(OffsetError, match="A newer version of Spark"):
            looking.locate(STREAM, 0)
