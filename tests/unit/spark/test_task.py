"""What a task reads, where no broker is needed for it."""

from __future__ import annotations

import pytest

from spark_groupsource import subject
from spark_groupsource.fetch.contract import FetchRange
from spark_groupsource.options.model import Options
from spark_groupsource.spark import task
from spark_groupsource.spark.task import RangePartition, TaskReader
from tests.support.options import BASE

NOTHING = FetchRange("t", 0, 5, 5)


@pytest.mark.parametrize(
    "ranges",
    [(), (NOTHING,), (NOTHING, FetchRange("t", 1, 3, 3)), (NOTHING, FetchRange("t", 0, 9, 9))],
    ids=["nothing granted", "one range", "two partitions", "two ranges of a partition"],
)
def test_a_task_without_offsets_reads_nothing(ranges: tuple[FetchRange, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    for once_in_a_worker in ("log_to_stderr", "freeze_imports"):
        monkeypatch.setattr(task, once_in_a_worker, lambda: None)
    assert list(TaskReader(Options.parse(BASE).fetch_settings()).read(RangePartition(ranges))) == []
    assert subject.current_subject() == "group billing: "
