"""The data source under test, which can be held at each step and logs what it was granted. Users never import it.

It runs in the query's runner and in the executors' workers, which find it through PYTHONPATH.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from spark_groupsource.errors import GroupKafkaError
from spark_groupsource.fetch.contract import FetchSettings
from spark_groupsource.group.fenced_commits import FencedCommits
from spark_groupsource.group.ledger import Ledger
from spark_groupsource.handoff import commit_record, planner
from spark_groupsource.handoff.commit_record import CommitRecord, GroupCommit, read_commit
from spark_groupsource.options.model import Options
from spark_groupsource.partition import TopicPartition
from spark_groupsource.query import session
from spark_groupsource.query.cycle import Cycle
from spark_groupsource.spark.datasource import GroupKafkaDataSource
from spark_groupsource.spark.task import RangePartition, TaskReader
from spark_groupsource.spark.version_readers import AdmissionControlReader
from tests.harness.events import EventLog
from tests.harness.sampler import newest_plans
from tests.harness.steps import Step, Steps

FORMAT = "groupkafka_chaos"
FOLDER, LOG, STREAM = "chaosfolder", "chaoslog", "chaosstream"
"""Options of the test's own: where steps are armed, the log of events, and the stream's name there."""
VERSION, NEXT = "chaosversion", "next"
"""Another one: with `next` the runner writes records of a next version of this package, and reads both."""
THIS_FORMAT, NEXT_FORMAT = '{"v":4,', '{"v":5,"k":"later",'
"""How the records of the two versions begin."""


class ChaosDataSource(GroupKafkaDataSource):
    """`groupkafka`, with the steps."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return GroupKafkaDataSource(self._theirs()).schema()

    def streamReader(self, schema: StructType) -> AdmissionControlReader:  # noqa: ARG002, N802
        own = {name: self.options[name] for name in (FOLDER, LOG, STREAM)}
        steps = Steps(Path(own[FOLDER]), EventLog(Path(own[LOG])), own[STREAM])
        return ChaosStreamReader(Options.parse(self._theirs()), steps, own[STREAM], newer=self.options.get(VERSION) == NEXT)

    def _theirs(self) -> dict[str, str]:
        return {name: value for name, value in self.options.items() if name.lower() not in (FOLDER, LOG, STREAM, VERSION)}


class ChaosStreamReader(AdmissionControlReader):
    """Spark's calls, with a step before and after those that matter."""

    def __init__(self, options: Options, steps: Steps, stream: str, *, newer: bool = False) -> None:
        super().__init__(options)
        self._newer = newer
        self._steps = steps
        self._stream = stream
        self._has_planned = False

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        if _has_records(start):
            self._steps.come_to(Step.BEFORE_CONFIRMATION)
        self._has_planned = True
        planned = super().latestOffset(start, limit)
        if planned is not start and _has_records(planned):
            self._steps.come_to(Step.BEFORE_OFFSET_LOG)
        return planned

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        if self._has_planned and _has_records(end):
            self._steps.come_to(Step.BEFORE_CLAIM)
        granted = super().partitions(start, end)
        ranges = [
            (one.partition, one.start, one.end) for task in granted if isinstance(task, RangePartition) for one in task.ranges
        ]
        owned = [int(partition) for partitions in end["ranges"].values() for partition in partitions]
        self._steps.log.append("granted", stream=self._stream, name=end["stream"], plan=end["plan"], ranges=ranges, owned=owned)
        if not self._has_planned:
            self._steps.come_to(Step.IN_REPLAY)
        elif ranges:
            self._steps.come_to(Step.AFTER_CLAIM)
        return granted

    def task_reader(self) -> TaskReader:
        return ChaosTaskReader(self._fetch_settings, self._steps)

    def _running(self) -> Cycle:
        if self._cycle is None:
            self._steps.log.append("runner", stream=self._stream)
            # The driver's log has the rebalances, which help to explain a run.
            logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
            _put_steps_below(self._steps, self._stream)
            if self._stream != "A":
                _share_tasks()
            if self._newer:
                _write_the_next_format()
        return super()._running()


class ChaosTaskReader(TaskReader):
    """The tasks' part, with a step in the middle."""

    def __init__(self, settings: FetchSettings, steps: Steps) -> None:
        super().__init__(settings)
        self._steps = steps

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for batch in super().read(partition):
            self._steps.come_to(Step.IN_TASK)
            yield batch


def _has_records(offset: Mapping[str, Any]) -> bool:
    return any(end > start for partitions in offset["ranges"].values() for bounds in partitions.values() for start, end in bounds)


def _put_steps_below(steps: Steps, stream: str) -> None:
    """Build the cycle of this process, the runner of one query, from parts with steps in them."""
    closing = False
    """Whether the consumer's thread closes a plan that was reported as durable. Only that thread uses it."""

    class SteppedFencedCommits(FencedCommits):
        def commit(self, records: Mapping[TopicPartition, CommitRecord]) -> None:
            closes = closing and bool(records)
            if closes:
                steps.come_to(Step.BEFORE_CLOSING)
                # A sample at the very moment: what is durable is read before the commit is sent.
                committed = {partition.partition: record.offset for partition, record in records.items() if record.offset}
                steps.log.append("closing", stream=stream, committed=committed, newest=newest_plans(steps.checkpoints()))
            claims = not closes and any(record.open for record in records.values())
            held = claims and steps.come_to(Step.IN_CLAIM_COMMIT)
            try:
                super().commit(records)
            except GroupKafkaError as error:
                steps.log.append("refused", stream=stream, held=held, error=type(error).__name__, text=str(error)[:300])
                raise
            if held:
                steps.log.append("committed", stream=stream)
            if closes:
                steps.log.append("closed", stream=stream)

    class SteppedLedger(Ledger):
        def close_reported(self) -> None:
            nonlocal closing
            closing = True
            try:
                super().close_reported()
            finally:
                closing = False

        def draining(self, partitions: frozenset[TopicPartition]) -> None:
            super().draining(partitions)
            if self.in_flight(partitions):
                steps.come_to(Step.IN_DRAIN)

    session.FencedCommits = SteppedFencedCommits  # type: ignore[attr-defined]
    session.Ledger = SteppedLedger  # type: ignore[attr-defined]


def _share_tasks() -> None:
    """Have a task read all partitions with few records, as it does where there are many of them."""
    planner.LEAST_TASKS = 1, 1


def _write_the_next_format() -> None:
    """Make this process, the runner of one query, write records that have a field more and a higher version."""

    class NextFencedCommits(session.FencedCommits):  # type: ignore[misc, name-defined]
        def _encoded(self, partition: TopicPartition, record: CommitRecord) -> str:
            text: str = super()._encoded(partition, record)
            return NEXT_FORMAT + text.removeprefix(THIS_FORMAT)

    def read_both(offset: int, metadata: str | None, cluster_id: str | None = None, *, epoch: int | None = None) -> GroupCommit:
        if metadata and metadata.startswith(NEXT_FORMAT):
            metadata = THIS_FORMAT + metadata.removeprefix(NEXT_FORMAT)
        return read_commit(offset, metadata, cluster_id, epoch=epoch)

    commit_record.read_commit = read_both
    session.FencedCommits = NextFencedCommits  # type: ignore[attr-defined]
