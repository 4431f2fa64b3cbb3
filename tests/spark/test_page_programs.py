"""The complete programs of README.md, docs/guide.md, docs/sink.md and docs/schema-registry.md, run as a new user runs them.

Each is saved as it stands, and started by the command that its page shows, in a folder outside the clone with a virtual
environment that is not activated. Only the broker's address is replaced.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from devtools.broker import Cluster
from devtools.broker.ports import free_ports
from spark_groupsource.brokers.group_admin import GroupAdmin
from spark_groupsource.spark.datasource import ADMISSION_CONTROL
from tests.conftest import NOT_FENCED
from tests.support.committed import read_committed
from tests.support.fresh import Environment, Newcomer
from tests.support.group_offsets import total_lag
from tests.support.page_programs import ROOT, blocks, replaced
from tests.support.sinks import written
from tests.support.waiting import until

REGISTRY = "docs/schema-registry.md"
RECIPES = "docs/recipes.md"
PAGES = ("README.md", "docs/guide.md", RECIPES, "docs/sink.md", REGISTRY)
ADDRESS = "localhost:9092"
RECORDS = [sys.executable, "-m", "devtools.records"]
SLOW_S = 240.0
"""For what takes seconds on a machine that has nothing else to do: two Sparks start, and each compiles much."""


def complete(page: str) -> dict[str, str]:
    """The programs of a page that make their own session or client, by name."""
    programs = [code for code in blocks(page, "python") if re.search(r"SparkSession\.builder|= Producer\(", code)]
    return {code.splitlines()[0].removeprefix("# "): code for code in programs}


def command(page: str, part: str) -> str:
    """The command of a page that ends with a text."""
    lines = [line for block in blocks(page, "sh") for line in block.splitlines() if line.endswith(part)]
    assert lines, f"{page} has no command that ends with {part}"
    return lines[0]


def test_every_complete_program_of_these_pages_is_run_here() -> None:
    named = {page: sorted(complete(page)) for page in PAGES}
    assert named == {
        "README.md": ["pipeline.py"],
        "docs/guide.md": ["pipeline.py", "produce.py", "typed.py"],
        RECIPES: ["dead_letters.py", "merge_delta.py", "test_orders.py"],  # tests/notebooks runs the one with Delta Lake
        "docs/sink.md": ["invoices.py"],
        REGISTRY: ["produce_avro.py"],
    }


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    made = Environment(tmp_path_factory.mktemp("fresh"))
    made.install(command("README.md", "pip install '.[spark,cli]'"))
    return made


@pytest.fixture
def broker() -> Iterator[Cluster]:
    """A broker of the test's own, since the programs name their topics and groups."""
    with Cluster(config=NOT_FENCED) as running:
        yield running


@pytest.fixture
def newcomer(tmp_path: Path, environment: Environment) -> Newcomer:
    return Newcomer(tmp_path, environment.folder)


@pytest.fixture
def live(broker: Cluster) -> Iterator[subprocess.Popen[str]]:
    """`make records` for this broker; the topic exists."""
    argv = [*RECORDS, "--bootstrap-server", broker.bootstrap_servers]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("writing 10 records each second into orders")
        yield process
        process.kill()


@pytest.fixture
def schemas(tmp_path: Path) -> Iterator[str]:
    """The address that `make registry` prints."""
    argv = [sys.executable, "-m", "devtools.registry", "--port", str(free_ports(1)[0])]
    with (
        open(tmp_path / "registry.log", "w", encoding="utf-8") as log,
        subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        assert process.stdout is not None
        name, _, address = process.stdout.readline().strip().partition(" = ")
        assert name == "registry.url", (tmp_path / "registry.log").read_text()
        yield address
        process.terminate()
        assert process.wait(60) == 0


def stop(live: subprocess.Popen[str]) -> int:
    """Stop `make records`, and return how many records it says that it has written."""
    live.terminate()
    said, _ = live.communicate(timeout=60)
    return int(said.split()[0])


def members(broker: Cluster) -> int:
    return sum(
        1 for one in GroupAdmin({"bootstrap.servers": broker.bootstrap_servers}).describe("billing").members if one.partitions
    )


def stream_of(checkpoint: Path) -> str:
    newest = max((checkpoint / "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
    (stream,) = re.findall(r'"stream": ?"([0-9a-zA-Z_-]+)"', newest.read_text())
    return str(stream)


def here(text: str, broker: Cluster) -> str:
    assert ADDRESS in text
    return text.replace(ADDRESS, broker.bootstrap_servers)


def test_the_program_of_the_readme_shows_rows_and_two_of_it_share_the_topic(
    newcomer: Newcomer, broker: Cluster, live: subprocess.Popen[str]
) -> None:
    (code,) = blocks("README.md", "python")
    newcomer.save(here(code, broker))
    first, second = command("README.md", "python pipeline.py"), command("README.md", "python pipeline.py second")
    describe = here(command("README.md", "describe --bootstrap-server localhost:9092 --group billing"), broker)
    claims = here(command("README.md", "claims --bootstrap-server localhost:9092 --group billing"), broker)

    def shown(name: str) -> list[str]:
        return re.findall(r"\border \d+", newcomer.printed(name))

    with newcomer.running(first, "first") as one:
        until(lambda: one.ended or shown("first"), "rows of the first", SLOW_S)
        with newcomer.running(second, "second") as two:
            until(lambda: one.ended or two.ended or (shown("second") and members(broker) == 2), "rows of the second", SLOW_S)
            assert len(re.findall("^orders ", newcomer.run(describe), re.MULTILINE)) == 4
            two.terminate()
            two.finish()
        until(lambda: one.ended or members(broker) == 1, "the first has all partitions again", SLOW_S)
        assert stream_of(newcomer.folder / "checkpoints" / "second") not in newcomer.run(claims)
        sent = stop(live)
        until(lambda: one.ended or total_lag(broker, "billing", "orders") == 0, "all is read", SLOW_S)
        one.interrupt()
        said = one.finish()
    assert "Traceback" not in said
    both = set(shown("first")), set(shown("second"))
    assert both[0] | both[1] == {f"order {number}" for number in range(sent)}
    assert both[0] & both[1] == set()
    assert "nothing is claimed" in newcomer.run(claims)


@pytest.mark.long
def test_the_pipeline_of_the_guide_writes_each_record_once_over_a_stop_and_a_second_query(
    newcomer: Newcomer, broker: Cluster, live: subprocess.Popen[str]
) -> None:
    newcomer.save(here(complete("docs/guide.md")["pipeline.py"], broker))
    outputs = [newcomer.folder / "output" / name for name in ("billing-1", "billing-2")]
    first, second = command("docs/guide.md", "python pipeline.py"), command("docs/guide.md", "python pipeline.py billing-2")
    with newcomer.running(first, "first") as process:
        until(lambda: process.ended or written(outputs[0]), "files of the first", SLOW_S)
        process.interrupt()
        process.finish()
    before = len(written(outputs[0]))
    with newcomer.running(first, "first") as one, newcomer.running(second, "second") as two:
        until(lambda: one.ended or two.ended or (written(outputs[1]) and members(broker) == 2), "files of the second", SLOW_S)
        sent = stop(live)
        until(lambda: one.ended or total_lag(broker, "billing", "orders") == 0, "all is read", SLOW_S)
        for process in (one, two):
            process.interrupt()
            assert "Traceback" not in process.finish()
    rows = [place for output in outputs for place in written(output)]
    assert len(written(outputs[0])) > before > 0
    assert len(rows) == len(set(rows)) == sent


@pytest.mark.long
def test_the_typed_program_of_the_guide_has_each_record_in_one_of_its_outputs(newcomer: Newcomer, broker: Cluster) -> None:
    for name in ("produce.py", "typed.py"):
        newcomer.save(here(complete("docs/guide.md")[name], broker))
    newcomer.run(command("docs/guide.md", "python produce.py"))
    for _ in range(2):  # the second time there is nothing new
        printed = newcomer.run(command("docs/guide.md", "python typed.py"))
    assert "customer-1" in printed
    assert "no JSON" in printed
    typed = pq.read_table(newcomer.folder / "output" / "typed", partitioning=None).to_pylist()
    assert sorted(row["id"] for row in typed) == [number for number in range(1000) if number % 10 != 9]
    assert {row["amount"] for row in typed if row["id"] == 3} == {0.75}
    dead = [line for file in newcomer.folder.glob("output/dead-letters/*/*.json") for line in file.read_text().splitlines()]
    assert len(dead) == 100


@pytest.mark.long
def test_the_dead_letters_of_the_recipe_are_in_a_topic_of_their_own_each_once(newcomer: Newcomer, broker: Cluster) -> None:
    newcomer.save(here(complete("docs/guide.md")["produce.py"], broker))
    newcomer.save(here(complete(RECIPES)["dead_letters.py"], broker))
    newcomer.run(command("docs/guide.md", "python produce.py"))
    for _ in range(2):  # the second time there is nothing new
        newcomer.run(command(RECIPES, "python dead_letters.py"))
    typed = [json.loads(value) for value in read_committed(broker, "orders-typed")]
    assert sorted(order["id"] for order in typed) == [number for number in range(1000) if number % 10 != 9]
    assert read_committed(broker, "orders-dead") == ["no JSON"] * 100


@pytest.mark.long
def test_the_test_of_the_recipe_passes(newcomer: Newcomer, environment: Environment) -> None:
    environment.install(command(RECIPES, "chispa pytest"))
    newcomer.save(complete(RECIPES)["test_orders.py"])
    assert "1 passed" in newcomer.run(command(RECIPES, "pytest test_orders.py"))


@pytest.mark.long
def test_the_program_of_the_sink_page_copies_each_record_once(
    newcomer: Newcomer, broker: Cluster, live: subprocess.Popen[str]
) -> None:
    newcomer.save(here(complete("docs/sink.md")["invoices.py"], broker))
    newcomer.run(here(command("docs/sink.md", "result()'"), broker))
    copy = command("docs/sink.md", "python invoices.py")
    newcomer.run(copy)
    sent = stop(live)
    newcomer.run(copy)
    assert read_committed(broker, "invoices") == sorted(f"ORDER {number}" for number in range(sent))


@pytest.mark.long
@pytest.mark.skipif(not ADMISSION_CONTROL, reason="the page's jar is of Spark 4.2")
def test_the_commands_of_the_registry_page_make_typed_rows_and_a_dead_letter(
    newcomer: Newcomer, broker: Cluster, environment: Environment, schemas: str
) -> None:
    environment.install(command(REGISTRY, "fastavro"))
    output = newcomer.folder / "output" / "registry"
    (options,) = blocks(REGISTRY, "properties")

    def rows(kind: str) -> int:
        return sum(pq.read_metadata(file).num_rows for file in output.glob(f"{kind}/*/*.parquet"))

    ours = {ADDRESS: broker.bootstrap_servers, "http://localhost:8081/apis/ccompat/v7": schemas}
    newcomer.save(replaced(complete(REGISTRY)["produce_avro.py"], ours))
    newcomer.save(replaced(options, ours))
    newcomer.save("# registry.py\n" + (ROOT / "conf" / "registry.py").read_text())
    newcomer.run(command(REGISTRY, "python produce_avro.py"))
    with newcomer.running("env " + command(REGISTRY, "output/registry"), "registry-program") as process:
        until(lambda: process.ended or (rows("records"), rows("dead-letters")) == (1000, 1), "all is decoded", SLOW_S)
        assert not process.ended, process.log()
