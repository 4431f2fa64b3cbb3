"""The recipe for Delta Lake, run with the environment of its notebook, since it needs another Spark than the tests."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.broker import Cluster
from tests.conftest import NOT_FENCED
from tests.notebooks.test_notebooks import DELTA_PYTHON, LIMIT_S
from tests.support.page_programs import program
from tests.support.queries import NO_WORKER

TABLE = "import json, deltalake; print(json.dumps(deltalake.DeltaTable('orders').to_pandas().to_dict('records')))"


@pytest.fixture
def broker() -> Iterator[Cluster]:
    """A broker of the test's own, since the programs name their topics and groups."""
    with Cluster(config=NOT_FENCED) as running:
        yield running


@pytest.mark.notebooks
def test_the_merge_keeps_the_newest_record_of_each_key_and_a_second_run_changes_nothing(broker: Cluster, tmp_path: Path) -> None:
    here = {"localhost:9092": broker.bootstrap_servers}
    (tmp_path / "produce.py").write_text(program("docs/guide.md", "produce.py", here))
    (tmp_path / "merge_delta.py").write_text(program("docs/recipes.md", "merge_delta.py", here))

    def run(*arguments: str, repeats: bool = True) -> str:
        environment = {**os.environ, "PYSPARK_SUBMIT_ARGS": "--master local[2] --driver-memory 1g pyspark-shell"}
        done = subprocess.run(
            [DELTA_PYTHON, *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        if NO_WORKER in done.stderr and repeats:
            return run(*arguments, repeats=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("produce.py")
    for _ in range(2):
        run("merge_delta.py")
    rows = {row["key"]: row["value"] for row in json.loads(run("-c", TABLE))}
    newest = {str(number % 7): number for number in range(1000)}
    assert rows.keys() == newest.keys()
    for key, number in newest.items():
        assert rows[key] == "no JSON" if number % 10 == 9 else json.loads(rows[key])["id"] == number
    versions = len(list((tmp_path / "orders" / "_delta_log").glob("*.json")))
    assert versions <= 3, "the table, and the micro-batches of the first run"
