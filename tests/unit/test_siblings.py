"""Sources of one query find each other, those of two queries do not: in processes started as Spark starts its runners."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

PR_SET_NAME = 15

RUNNER = """
import sys
from spark_groupsource.errors import GroupSharedInQuery
from spark_groupsource.query.siblings import Source, refuse_shared_topics

cluster, group, *topics = sys.argv[1:]
try:
    refuse_shared_topics(Source(cluster, group, frozenset(topics)))
except GroupSharedInQuery as refused:
    print("refused:", refused, flush=True)
else:
    print("joined", flush=True)
sys.stdin.read()
"""

pytestmark = pytest.mark.skipif(
    not Path("/proc/thread-self/children").exists(), reason="needs a kernel that knows which thread started a process"
)


def run_query(
    *sources: Sequence[str],
    thread_name: str = "stream execution thread for q",
    ended: int = 0,
    together: threading.Barrier | None = None,
) -> list[str]:
    """What each source prints; the runners live at the same time, but for the first so many, which have ended by then."""

    def run() -> list[str]:
        ctypes.CDLL(None).prctl(PR_SET_NAME, thread_name.encode(), 0, 0, 0)
        printed = []
        with ExitStack() as runners:
            for number, source in enumerate(sources):
                argv = [sys.executable, "-c", RUNNER, *source]
                runner = subprocess.Popen(argv, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                assert runner.stdin is not None
                assert runner.stdout is not None
                runners.enter_context(runner)
                runners.callback(runner.stdin.close)
                printed.append(runner.stdout.readline().strip())
                if number < ended:
                    runner.kill()
                    runner.wait()
            if together is not None:
                together.wait(60)
        return printed

    with ThreadPoolExecutor(1) as query:
        return query.submit(run).result()


def test_a_second_source_that_reads_a_topic_of_the_first_in_its_group_is_refused() -> None:
    first, second = run_query(["c", "g", "orders", "returns"], ["c", "g", "payments", "orders"])
    assert first == "joined"
    assert second.startswith("refused: Two sources of this query are members of the group 'g' and read orders: ")


@pytest.mark.parametrize(
    "second",
    [["c", "g", "returns"], ["c", "other", "orders"], ["another cluster", "g", "orders"]],
    ids=["other topics", "another group", "a group of that name in another cluster"],
)
def test_sources_that_do_not_share_partitions_go_together(second: list[str]) -> None:
    assert run_query(["c", "g", "orders"], second) == ["joined", "joined"]


def test_a_source_of_an_ended_run_does_not_count() -> None:
    assert run_query(["c", "g", "orders"], ["c", "g", "orders"], ended=1) == ["joined", "joined"]


def test_two_queries_of_one_driver_share_a_group() -> None:
    both_run = threading.Barrier(2)
    with ThreadPoolExecutor(2) as queries:
        runs = [queries.submit(run_query, ["c", "g", "orders"], together=both_run) for _ in range(2)]
    assert [run.result() for run in runs] == [["joined"], ["joined"]]


def test_processes_that_something_else_than_a_query_starts_are_no_sources_of_one_query() -> None:
    orders = ["c", "g", "orders"]
    assert run_query(orders, orders, thread_name="a daemon") == ["joined", "joined"]
