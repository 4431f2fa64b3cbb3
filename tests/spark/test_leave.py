"""The way out: docs/leaving.md, followed to the letter, from this source to Spark's own. Each record is in one output, once."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import DataFrame

from devtools.broker import Cluster
from spark_groupsource import stop_gracefully
from spark_groupsource.cli.main import main
from tests.conftest import MakeTopic
from tests.support.group_offsets import end_offsets
from tests.support.page_programs import blocks, replaced
from tests.support.producing import producing
from tests.support.queries import Queries, assert_rows
from tests.support.waiting import until

PAGE = "docs/leaving.md"
Leave = Callable[[str], Result]


@pytest.fixture
def leave(cluster: Cluster) -> Leave:
    """Runs the page's command for the group of a topic."""

    def run_command(topic: str) -> Result:
        (line,) = blocks(PAGE, "sh")
        ours = {"localhost:9092": cluster.bootstrap_servers, "--group billing": f"--group group-of-{topic}"}
        return CliRunner().invoke(main, shlex.split(replaced(line, ours))[1:])

    return run_command


def places(rows: DataFrame) -> DataFrame:
    return rows.select("partition", "offset")


def answer(leave: Leave, topic: str) -> Result:
    """Return what the command says once all members have left the group."""
    until(lambda: "Stop the group's queries" not in leave(topic).output, "all have left")
    return leave(topic)


@pytest.mark.parametrize(
    "gracefully",
    [pytest.param(True, id="stopped gracefully"), pytest.param(False, id="interrupted", marks=pytest.mark.long)],
)
def test_sparks_own_source_continues_where_two_queries_have_stopped(
    queries: Queries, topic: MakeTopic, cluster: Cluster, leave: Leave, gracefully: bool
) -> None:
    name = topic(partitions=2)
    both = [queries(which, name) for which in ("a", "b")]
    with producing(cluster, name, per_second=300):
        for query in both:
            query.start(processingTime="200 milliseconds")
        for query in both:
            query.until_rows(300)
        busy = leave(name)
        assert busy.exit_code == 1
        assert "Stop the group's queries" in busy.output
        # 1.
        nothing_claimed = gracefully
        for query in both:
            if gracefully:
                nothing_claimed &= stop_gracefully(query.running, timeout_s=120)  # not on a machine that stands still
            else:
                query.stop()
        # 2.
        left = answer(leave, name)
        for _ in range(3):
            if left.exit_code == 0:
                break
            print(left.output)
            assert not nothing_claimed
            assert "have claimed ranges" in left.output
            for query in both:
                query.run()
            left = answer(leave, name)
        assert left.exit_code == 0, left.output
        before = [query.offsets() for query in both]
        # 3. and 4.
        (program,) = map(textwrap.dedent, blocks(PAGE, "python"))
        program = replaced(
            program,
            {
                "localhost:9092": cluster.bootstrap_servers,
                '"subscribe", "orders"': f'"subscribe", "{name}"',
                '{"orders": {"0": 120, "1": 118}}': left.output.splitlines()[-1],
            },
        )
        scope = {"spark": both[0].spark}
        exec(program, scope)  # noqa: S102  # a program of this project's own page
        new = queries.made("new", "kafka", {})
        new.load = lambda: scope["orders"]  # type: ignore[method-assign,assignment,return-value]
        # 5.
        new.start(processingTime="200 milliseconds").until_rows(300)
    ends = end_offsets(cluster, name)
    new.until_rows(sum(ends.values()) - sum(map(len, before)))
    new.stop()
    assert [query.offsets() for query in both] == before
    rows = places(both[0].frame()).union(places(both[1].frame())).union(places(new.frame()))
    assert_rows(rows, [(partition, offset) for partition, end in ends.items() for offset in range(end)])
