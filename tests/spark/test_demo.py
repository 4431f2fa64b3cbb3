"""`make demo`, run as a user runs it, and the count at its end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from devtools.demo.count import committed_files, count_records
from tests.support.processes import CAN_LOOK, all_have_ended, processes_with

DEMO = [sys.executable, "-m", "devtools.demo"]
DEMO_LIMIT_S = 400

StartDemo = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def mark() -> str:
    """Stands in the environment of a demo and of all that it starts."""
    return f"demo-{uuid.uuid4()}"


@pytest.fixture
def start_demo(tmp_path: Path, mark: str) -> Iterator[StartDemo]:
    """Starts a demo whose temporary folders are below the test's own."""
    started: list[subprocess.Popen[str]] = []

    def start(**environment: str) -> subprocess.Popen[str]:
        demo = subprocess.Popen(
            DEMO,
            env={**os.environ, "TMPDIR": str(tmp_path), "DEMO_MARK": mark, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(demo)
        return demo

    yield start
    for demo in started:
        demo.kill()
        demo.communicate()


def demo_folders(tmp_path: Path) -> list[str]:
    return [folder.name for folder in tmp_path.glob("groupkafka-*")]


@pytest.mark.long
def test_the_demo_hands_over_and_counts_every_record_once(start_demo: StartDemo, tmp_path: Path, mark: str) -> None:
    demo = start_demo()
    output, _ = demo.communicate(timeout=DEMO_LIMIT_S)
    assert demo.returncode == 0, output
    counted = re.search(r"produced (\d+), read (\d+), lost 0, doubled 0: every record counted once", output)
    assert counted is not None, output
    assert counted[1] == counted[2]
    assert int(counted[1]) > 10_000
    story = [
        "topic orders with 6 partitions",
        "rebalance: generation",
        "A and B share the topic",
        "interrupting query B",
        "A took over",
        "starting query B again",
        "both share again",
        "producer stopped",
        "lag 0, nothing held",
        "PARTITION",
        "README.md",
    ]
    places = [output.find(words) for words in story]
    assert -1 not in places, (story[places.index(-1)], output)
    assert places == sorted(places), output
    for owed in re.finditer(r"B read the micro-batch that was interrupted: (\d+) records; (\d+) were held for it", output):
        assert owed[1] == owed[2]
    assert demo_folders(tmp_path) == []
    all_have_ended(mark)


@pytest.mark.long
@pytest.mark.skipif(not CAN_LOOK, reason="looks for processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_demo_that_is_interrupted_leaves_no_process(
    start_demo: StartDemo, tmp_path: Path, mark: str, number: signal.Signals
) -> None:
    demo = start_demo()
    assert demo.stdout is not None
    seen = []
    for line in demo.stdout:
        seen.append(line)
        if "A running" in line:
            break
    assert len(processes_with(mark)) > 5, seen
    demo.send_signal(number)
    rest, _ = demo.communicate(timeout=60)
    all_have_ended(mark)
    assert demo.returncode != 0
    assert "Traceback" not in rest
    if number != signal.SIGKILL:
        assert demo_folders(tmp_path) == []


@pytest.mark.long
def test_a_query_that_fails_is_reported_with_the_end_of_its_log(start_demo: StartDemo, tmp_path: Path, mark: str) -> None:
    demo = start_demo(PYSPARK_SUBMIT_ARGS="--no-such-option pyspark-shell")
    output, _ = demo.communicate(timeout=DEMO_LIMIT_S)
    assert demo.returncode == 1
    assert re.search(r"Error: Query [AB]: .*JAVA_GATEWAY_EXITED", output), output
    assert re.search(r"The end of .*query\.log:\n(.+\n)+", output), output
    (folder,) = demo_folders(tmp_path)
    assert f"All logs: {tmp_path / folder}" in output
    all_have_ended(mark)


def test_without_java_the_demo_says_what_to_install(start_demo: StartDemo) -> None:
    demo = start_demo(JAVA_HOME="", PATH="")
    output, _ = demo.communicate(timeout=DEMO_LIMIT_S)
    assert demo.returncode == 1
    assert "Install Java 17" in output
    assert "Traceback" not in output


# The count.


class Sink:
    """A file sink's folder, as Spark writes it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "_spark_metadata"
        self.log.mkdir(parents=True)

    def file(self, name: str, numbers: Sequence[int], partition: int = 0) -> str:
        """Write a file of rows; the line that lists it."""
        table = pa.table({"number": pa.array(numbers, pa.int64()), "partition": pa.array([partition] * len(numbers), pa.int32())})
        pq.write_table(table, self.folder / name)
        path = (self.folder / name).as_uri()
        return json.dumps({"path": path, "size": 1, "isDir": False, "modificationTime": 1, "action": "add"})

    def list(self, batch: str, *lines: str) -> None:
        """Write one file of the sink's log."""
        (self.log / batch).write_text("\n".join(["v1", *lines]))


@pytest.fixture
def sinks(tmp_path: Path) -> dict[str, Sink]:
    # Blanks and the like stand as %20 in the log's paths.
    return {name: Sink(tmp_path / f"query {name} é" / "out") for name in "AB"}


def outputs(sinks: dict[str, Sink]) -> dict[str, Path]:
    return {name: sink.folder for name, sink in sinks.items()}


@pytest.mark.parametrize(
    ("produced", "a", "b", "lost_doubled_unknown"),
    [
        pytest.param(4, [0, 1, 3], [], ((2,), (), ()), id="one is lost"),
        pytest.param(3, [0, 1, 2], [2], ((), (2,), ()), id="one is in both"),
        pytest.param(3, [0, 1, 1], [], ((2,), (1,), ()), id="one is lost, and another one doubled"),
        pytest.param(1, [0, 7], [], ((), (), (7,)), id="one was never produced"),
    ],
)
def test_what_is_not_exactly_once_is_named(
    sinks: dict[str, Sink], produced: int, a: list[int], b: list[int], lost_doubled_unknown: tuple[tuple[int, ...], ...]
) -> None:
    sinks["A"].list("0", sinks["A"].file("a0", a))
    sinks["B"].list("0", sinks["B"].file("b0", b))
    result = count_records(produced, outputs(sinks))
    assert not result.exactly_once
    assert result.read == len(a) + len(b)
    assert (result.lost, result.doubled, result.unknown) == lost_doubled_unknown


def test_a_compact_file_of_the_log_replaces_all_before_it(sinks: dict[str, Sink]) -> None:
    sink = sinks["A"]
    lines = [sink.file(f"a{number}", [number]) for number in range(4)]
    for batch in range(2):
        sink.list(str(batch), lines[batch])
    sink.list("2.compact", *lines[:3])
    sink.list("3", lines[3])
    assert [file.name for file in committed_files(sink.folder)] == ["a0", "a1", "a2", "a3"]
    assert count_records(4, outputs(sinks)).exactly_once
