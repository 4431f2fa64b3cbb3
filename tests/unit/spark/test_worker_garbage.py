"""Garbage collection in an executor's Python worker."""

from __future__ import annotations

import subprocess
import sys

READ_AN_EMPTY_RANGE = """
import gc, time
from spark_groupsource.fetch.contract import FetchRange
from spark_groupsource.options.model import Options
from spark_groupsource.spark.task import RangePartition, TaskReader

options = Options.parse({"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.group.id": "g", "subscribe": "t"})
for _ in range(2):
    assert list(TaskReader(options.fetch_settings()).read(RangePartition((FetchRange("t", 0, 5, 5),)))) == []
    print(gc.get_freeze_count(), len(gc.get_objects()))
"""


def test_what_a_worker_has_imported_is_left_out_of_the_collection_after_each_task() -> None:
    shown = subprocess.run([sys.executable, "-c", READ_AN_EMPTY_RANGE], capture_output=True, text=True, check=True).stdout
    (frozen, left), (frozen_later, left_later) = (map(int, line.split()) for line in shown.splitlines())
    assert frozen > 10_000
    assert left < frozen / 10
    # Once: what the tasks themselves leave behind is collected as ever.
    assert frozen_later <= frozen
    assert left_later < frozen / 10
