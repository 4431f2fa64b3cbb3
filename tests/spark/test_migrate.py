"""From Spark's own Kafka source to this one: the group continues where the old checkpoint ends, and no row is lost or doubled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from devtools.broker import Cluster
from spark_groupsource.cli.main import main
from spark_groupsource.spark.datasource import ADMISSION_CONTROL
from tests.conftest import MakeTopic, Produce
from tests.support.group_offsets import end_offsets
from tests.support.producing import producing
from tests.support.queries import Pipeline, Queries, assert_rows, is_spark_55271, setting
from tests.support.waiting import until

Migrate = Callable[..., Result]


@pytest.fixture
def migrate(cluster: Cluster) -> Migrate:
    """Runs the command for the checkpoint of a pipeline, into the group of its topic."""

    def run_command(old: Pipeline, topic: str, *more: str) -> Result:
        given = ["--checkpoint", str(old.folder / "checkpoint"), "--group", f"group-of-{topic}"]
        return CliRunner().invoke(main, ["migrate", *given, "--bootstrap-server", cluster.bootstrap_servers, *more])

    return run_command


def places(rows: DataFrame) -> DataFrame:
    return rows.select("partition", "offset")


def every_offset(cluster: Cluster, topic: str) -> list[tuple[int, int]]:
    return sorted((partition, offset) for partition, end in end_offsets(cluster, topic).items() for offset in range(end))


def test_a_query_goes_on_where_sparks_own_source_stopped(
    queries: Queries, topic: MakeTopic, cluster: Cluster, admin: AdminClient, migrate: Migrate
) -> None:
    name = topic(partitions=3)
    options = {"subscribe": name, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "300"}
    old = queries.made("old", "kafka", options)
    new = queries("new", name, startingOffsets="latest")  # each partition has its commit
    with producing(cluster, name, per_second=300):
        old.start(processingTime="200 milliseconds").until_rows(1_000)
        old.stop()
        # It was stopped wherever it was: this finishes a micro-batch that was cut short, and leaves none behind.
        del options["maxOffsetsPerTrigger"]
        rest = queries.made("old", "kafka", options)
        try:
            rest.run()
        except StreamingQueryException as failed:
            if not is_spark_55271(rest.spark, failed):
                raise
            rest.run()
        stood_at = old.offsets()
        admin.create_partitions([NewPartitions(name, 4)])[name].result(30)
        until(lambda: len(admin.list_topics(name, timeout=30).topics[name].partitions) == 4, "4 partitions")
        assert "dry run" in migrate(old, name).output
        done = migrate(old, name, "--execute")
        assert done.exit_code == 0, done.output
        assert f"added after the checkpoint, so it will be read from the beginning: {name}-3" in done.output
        new.start(processingTime="200 milliseconds").until_rows(500)
    new.until_rows(len(every_offset(cluster, name)) - len(stood_at))
    new.stop()
    assert old.offsets() == stood_at
    assert_rows(places(old.frame()).union(places(new.frame())), every_offset(cluster, name))
    assert {partition for partition, _ in new.offsets()} == {0, 1, 2, 3}


def test_a_micro_batch_that_failed_is_read_by_the_new_query_when_that_is_said(
    queries: Queries, topic: MakeTopic, produce: Produce, cluster: Cluster, migrate: Migrate, tmp_path: Path
) -> None:
    name = topic(partitions=2)
    for partition in range(2):
        produce(name, [(None, "x")] * 30, partition)
    out = tmp_path / "batches"

    def fail_in_the_second(batch: DataFrame, batch_id: int) -> None:
        if batch_id == 1:
            raise RuntimeError("the sink is down")
        batch.write.parquet(str(out / str(batch_id)))

    old = queries.made("old", "kafka", {"subscribe": name, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "20"})
    with setting(old.spark, "spark.sql.streaming.offsetLog.formatVersion", "2"):
        assert "the sink is down" in old.start(foreach_batch=fail_in_the_second, availableNow=True).failure()
    # Spark has the second format of the offset log since 4.2.
    assert not ADMISSION_CONTROL or (old.folder / "checkpoint" / "offsets" / "1").read_text().startswith("v2\n")
    refused = migrate(old, name, "--execute")
    assert refused.exit_code == 1
    assert "Micro-batch 1 was started but not committed" in refused.output
    assert migrate(old, name, "--execute", "--uncommitted", "reread").exit_code == 0
    new = queries("new", name)
    new.run()
    before = places(new.spark.read.parquet(str(out / "0")))
    assert before.count() == 20
    assert_rows(before.union(places(new.frame())), every_offset(cluster, name))
