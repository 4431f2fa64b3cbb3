"""What `groupkafka migrate` reads of a checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_groupsource.cli.checkpoint_files import Checkpoint
from spark_groupsource.errors import OptionError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for log in ("offsets", "commits"):
        (tmp_path / log).mkdir()
        for batch in (0, 1):
            (tmp_path / log / str(batch)).write_text(f'v1\n{{}}\n{{"orders":{{"0":{batch}}}}}')
    return tmp_path


def test_the_last_micro_batch_with_its_offsets_and_its_time(folder: Path) -> None:
    (folder / "offsets" / "2").write_text('v1\n{}\n{"orders":{"0":2}}')
    checkpoint = Checkpoint(str(folder))
    last, committed_at = checkpoint.last_batches()
    assert (last.committed, last.planned) == (1, 2)
    assert committed_at is not None
    assert checkpoint.offsets(2) == {"0": '{"orders":{"0":2}}'}


def test_a_query_that_keeps_state(folder: Path) -> None:
    checkpoint = Checkpoint(str(folder))
    assert not checkpoint.has_state()
    (folder / "state" / "0").mkdir(parents=True)
    assert checkpoint.has_state()


def test_a_folder_that_is_no_checkpoint_and_a_location_that_cannot_be_read_name_the_option(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"--checkpoint .*: this is not a streaming query's checkpoint"):
        Checkpoint(str(tmp_path)).last_batches()
    with pytest.raises(OptionError, match=r"--checkpoint there-is-no-such-scheme://\*\*\*@host/a") as refused:
        Checkpoint("there-is-no-such-scheme://user:hunter2@host/a")
    assert "hunter2" not in str(refused.value)
