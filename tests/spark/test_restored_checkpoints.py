"""A checkpoint and an output that were restored together, while the group has gone on."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner
from pyspark.errors import StreamingQueryException

from devtools.broker import Cluster
from spark_groupsource.cli.main import main
from tests.conftest import MakeTopic, Produce
from tests.support.producing import numbered
from tests.support.queries import Pipeline, Queries


def lose_newest_commit(pipeline: Pipeline) -> None:
    """Have the checkpoint and the output as they were when the newest micro-batch was in the offset log only."""
    for log in (pipeline.folder / "checkpoint" / "commits", pipeline.folder / "out" / "_spark_metadata"):
        newest = max(log.glob("[0-9]*"), key=lambda file: int(file.name))
        newest.unlink()
        (log / f".{newest.name}.crc").unlink(missing_ok=True)


def test_one_without_its_newest_commit_is_refused_and_its_advice_brings_each_row_once(
    queries: Queries, topic: MakeTopic, produce: Produce, cluster: Cluster
) -> None:
    name = topic()
    query = queries("a", name)
    for rows in (3, 6):
        produce(name, numbered(3))
        assert len(query.run()) == rows
    lose_newest_commit(query)
    assert len(query.rows()) == 3
    for _ in range(2):
        with pytest.raises(StreamingQueryException, match="According to the group, a micro-batch of stream") as refused:
            query.run()
    said = str(refused.value)
    (first,) = re.findall(rf"{name}-0 \[(\d+), 6\), and the group's position is 6\n", said)
    (command,) = re.findall(r"output does not have this micro-batch's rows.*`groupkafka (reset-offsets .*?)`", said)
    given = command.replace("NAME:PARTITION", f"{name}:0").replace("FIRST", first).split()
    where = ["--bootstrap-server", cluster.bootstrap_servers, "--group", f"group-of-{name}"]
    done = CliRunner().invoke(main, [*given, *where])
    assert done.exit_code == 0, done.output
    produce(name, numbered(3))
    query.run()
    assert query.offsets() == [(0, offset) for offset in range(9)]
