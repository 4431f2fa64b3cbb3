"""A sink query without Spark, whose tasks and driver run step by step."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pyarrow as pa

from devtools.broker import Cluster
from spark_groupsource.options.sink_model import SinkOptions
from spark_groupsource.sink.finishing import Tasks, finish
from spark_groupsource.sink.settings import SinkSettings
from spark_groupsource.sink.token_store import TokenStore
from spark_groupsource.sink.writing import Attempt, Report, write_once

RUN = "00000000-0000-0000-0000-000000000001"
LATER_RUN = "00000000-0000-0000-0000-000000000002"


class Query:
    """A query that writes to one topic: its options, and its tasks one by one."""

    def __init__(self, cluster: Cluster, topic: str | None, **more: str) -> None:
        self.cluster = cluster
        self.topic = topic
        self.given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "transactionalIdPrefix": "q", **more}
        if topic is not None:
            self.given["topic"] = topic
        self.names = self.settings().names(str(uuid.uuid4()))

    def renamed(self, **more: str) -> Query:
        """Return the same query with other options."""
        given = {**self.given, **more}
        changed = Query(self.cluster, given.pop("topic", None), **given)
        changed.names = changed.names._replace(query=self.names.query)
        return changed

    def settings(self, **more: str) -> SinkSettings:
        return SinkOptions.parse({**self.given, **more}, "stream").sink_settings("stream")

    def write(self, batch: int, rows: list[str] | pa.RecordBatch, task: int = 0, *, run: str = RUN, **more: str) -> Report:
        given = pa.RecordBatch.from_pydict({"value": rows}) if isinstance(rows, list) else rows
        return self.write_all(batch, iter([given]), task, run=run, **more)

    def write_all(self, batch: int, rows: Iterator[pa.RecordBatch], task: int = 0, *, run: str = RUN, **more: str) -> Report:
        return write_once(self.settings(**more), self.names, Attempt(batch, task, run, self.names.query), rows)

    def finish(self, batch: int, tasks: int, rows: int, *, run: str = RUN, empty: tuple[int, ...] = (), **more: str) -> None:
        topics = () if self.topic is None else (self.topic,)
        wrote = frozenset(range(tasks)).difference(empty)
        finish(self.settings(**more), self.names, batch, run, Tasks(tasks, rows, topics, wrote, frozenset(empty)))

    def run(self, batch: int, tasks: list[list[str]], *, run: str = LATER_RUN, **more: str) -> None:
        """Run a micro-batch to its end, or to the first error."""
        done = [self.write(batch, rows, number, run=run, **more) for number, rows in enumerate(tasks)]
        reported = Tasks(
            len(done),
            sum(one.written + one.skipped for one in done),
            tuple(sorted({topic for one in done for topic in one.topics})),
            wrote=frozenset(number for number, one in enumerate(done) if one.written or one.skipped),
            empty=frozenset(number for number, rows in enumerate(tasks) if not rows),
        )
        finish(self.settings(**more), self.names, batch, run, reported)

    @property
    def tokens(self) -> TokenStore:
        return TokenStore(self.settings().requests, self.names, self.topic)
