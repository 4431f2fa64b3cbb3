"""What the account is given: the rows of an output that grows, each once. And a claim that is left is noticed."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_groupsource.handoff.commit_record import CommitRecord, Foreign, GroupCommit, OpenRange, OwedRange
from tests.harness.evidence import Row
from tests.soak.claims import unsettled
from tests.soak.outputs import Output


def write_batch(folder: Path, batch: int, offsets: list[int], earlier: list[str] | None = None, name: str | None = None) -> str:
    """Write a micro-batch as Spark's file sink commits it."""
    (folder / "_spark_metadata").mkdir(parents=True, exist_ok=True)
    file = folder / f"part-{batch}.parquet"
    pq.write_table(pa.table({"partition": [0] * len(offsets), "offset": offsets, "number": offsets}), file)
    entry = json.dumps({"path": file.as_uri()})
    (folder / "_spark_metadata" / (name or str(batch))).write_text("\n".join(["v1", *(earlier or []), entry]))
    return entry


def test_an_output_gives_each_committed_file_once_and_deletes_it(tmp_path: Path) -> None:
    output = Output(tmp_path)
    assert output.new_rows() == []
    first = write_batch(tmp_path, 0, [0, 1])
    (tmp_path / "part-of-a-batch-that-was-cut-off.parquet").touch()
    assert output.new_rows() == [Row(0, 0, 0), Row(0, 1, 1)]
    assert output.new_rows() == []
    write_batch(tmp_path, 1, [2], [first], "1.compact")
    assert output.new_rows() == [Row(0, 2, 2)], "the merged log has the first file too, which was counted"
    assert output.new_rows() == []
    assert [file.name for file in tmp_path.glob("part-*")] == ["part-of-a-batch-that-was-cut-off.parquet"]


RECORD = CommitRecord(stream="s", logged=3, done=3, next=10)


@pytest.mark.parametrize(
    ("commit", "problem"),
    [
        (RECORD, ""),
        (RECORD.model_copy(update={"next": 9}), "read up to 9 of 10"),
        (RECORD.model_copy(update={"open": (OpenRange(8, 10),)}), "claimed: [8, 10)"),
        (RECORD.model_copy(update={"owed": (OwedRange("b", 1, 5, 7, None),)}), "owed: [5, 7) to b"),
        (Foreign(10), "it has no commit record of a query"),
        (None, "it has no commit record of a query"),
    ],
)
def test_a_partition_is_settled_when_it_is_read_to_its_end_and_nothing_is_held(commit: GroupCommit, problem: str) -> None:
    assert unsettled(commit, 10) == problem
