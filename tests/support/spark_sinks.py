"""A query into the sink, in the session of the tests."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import IsolationLevel
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from devtools.broker import Cluster
from spark_groupsource.brokers.offsets import LATEST_OFFSET, request_offsets
from spark_groupsource.partition import TopicPartition
from tests.support.committed import read_committed


class Sink:
    """A query into this sink, which is run repeatedly on the same checkpoint."""

    def __init__(self, cluster: Cluster, target: str, checkpoint: Path) -> None:
        self.cluster, self.target, self.checkpoint = cluster, target, checkpoint
        self.query: StreamingQuery | None = None

    def start(self, frame: DataFrame, mode: str = "append", **more: str) -> StreamingQuery:
        """Start it. The rows go to the target, unless they name their topics."""
        options = {
            "kafka.bootstrap.servers": self.cluster.bootstrap_servers,
            "checkpointLocation": str(self.checkpoint),
            **({} if "topic" in frame.columns else {"topic": self.target}),
            **more,
        }
        self.query = frame.writeStream.format("groupkafka").outputMode(mode).options(**options).start()
        return self.query

    def run(self, frame: DataFrame, **more: str) -> StreamingQuery:
        """Run to the end of what is there now."""
        query = self.start(frame, **more)
        query.processAllAvailable()
        query.stop()
        return query

    def stop(self) -> None:
        if self.query is not None:
            self.query.stop()

    def written(self) -> list[str]:
        return read_committed(self.cluster, self.target)

    def forget_newest_commit(self) -> str:
        """Delete the newest file of Spark's commit log, as if the driver had died before it wrote it. Return the micro-batch."""
        newest = max((self.checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
        newest.unlink()
        (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
        return newest.name

    def end(self) -> int:
        """Return how many records are in the topic, visible or not."""
        return sum(ends(self.cluster, self.target, IsolationLevel.READ_UNCOMMITTED).values())

    def written_ahead(self) -> int:
        """Return how many records in the topic are not yet visible to `read_committed` consumers."""
        return sum(hidden(self.cluster, self.target).values())


def hidden(cluster: Cluster, topic: str) -> dict[int, int]:
    """Return how far the last stable offset of each partition is behind its end: 0 while no transaction is open."""
    stable = ends(cluster, topic, IsolationLevel.READ_COMMITTED)
    return {one: end - stable[one] for one, end in ends(cluster, topic, IsolationLevel.READ_UNCOMMITTED).items()}


def ends(cluster: Cluster, topic: str, level: IsolationLevel) -> dict[int, int]:
    """Return the end of each partition, as readers of this level see it."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    partitions = [TopicPartition(topic, number) for number in admin.list_topics(topic, timeout=60).topics[topic].partitions]
    answers = request_offsets(admin, dict.fromkeys(partitions, LATEST_OFFSET), 60, level)
    return {one.partition: answer.result().offset for one, answer in answers.items()}
