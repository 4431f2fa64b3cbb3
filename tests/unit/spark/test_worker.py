"""What a task does with its worker: it sees the end of its rows, ends well when it is asked to, and leaves no garbage to collect.

The end of the rows is proven by Spark's own mark, and by nothing else.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import IO, Any

import pyarrow as pa
import pytest

from spark_groupsource.errors import InputIncomplete
from spark_groupsource.spark.worker import ended_by_signals, sees_the_end, whole

BATCH = pa.RecordBatch.from_pydict({"value": ["a", "b"]})
ARROWS_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
SPARKS_MARK = b"\xff\xff\xff\xfc"


def stream() -> bytes:
    """Two record batches without Arrow's mark of the end."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, BATCH.schema) as writer:
        writer.write_batch(BATCH)
        writer.write_batch(BATCH)
    written: bytes = sink.getvalue().to_pybytes()
    assert written.endswith(ARROWS_END)
    return written.removesuffix(ARROWS_END)


def over_tcp() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    return theirs, ours


@pytest.fixture(params=[over_tcp, socket.socketpair], ids=["TCP", "a Unix socket"])
def sockets(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, IO[bytes]]]:
    """The JVM's end, and what a worker of PySpark's daemon reads."""
    jvm, worker = request.param()
    with closing(jvm), closing(worker), os.fdopen(os.dup(worker.fileno()), "rb", 65536) as infile:
        yield jvm, infile


def in_a_worker(task: Callable[[], Any], infile: IO[bytes] | None) -> Any:
    """Call a function as `pyspark.worker.main(infile, outfile)` calls a task."""
    worker: dict[str, Any] = {"__name__": "pyspark.worker", "task": task}
    exec("def main(infile):\n    return task()", worker)  # noqa: S102 -- the name of the module is what is looked at
    return worker["main"](infile)


def rows_read(infile: IO[bytes]) -> int:
    def task() -> int:
        ended = sees_the_end()
        assert ended is not None
        return sum(batch.num_rows for batch in whole(iter(pa.ipc.open_stream(infile)), ended))

    found: int = in_a_worker(task, infile)
    return found


@pytest.mark.parametrize(
    "parts", [[ARROWS_END + SPARKS_MARK], [ARROWS_END, SPARKS_MARK], [ARROWS_END + SPARKS_MARK[:1]]], ids=["", "late", "in parts"]
)
def test_a_whole_input_is_whole(sockets: tuple[socket.socket, IO[bytes]], parts: list[bytes]) -> None:
    jvm, infile = sockets
    jvm.sendall(stream())
    for part in parts:
        jvm.sendall(part)
    assert rows_read(infile) == 4
    # PySpark reads the mark itself.
    assert infile.read(1) == SPARKS_MARK[:1]


@pytest.mark.parametrize("after", [b"", ARROWS_END, ARROWS_END + b"\xff\xff\xff\xff"], ids=["a batch", "Arrow's mark", "another"])
def test_an_input_that_is_cut_off_is_not(sockets: tuple[socket.socket, IO[bytes]], after: bytes) -> None:
    """Arrow takes the end of the socket between two record batches for the end of the stream."""
    jvm, infile = sockets
    jvm.sendall(stream() + after)
    jvm.shutdown(socket.SHUT_WR)
    with pytest.raises(InputIncomplete, match="has cancelled this task before its last row"):
        rows_read(infile)


def test_an_empty_input_that_is_cut_off_is_not() -> None:
    with pytest.raises(InputIncomplete):
        next(whole(iter(()), lambda: False))


def test_it_cannot_be_known_outside_of_a_worker() -> None:
    assert sees_the_end() is None
    assert in_a_worker(sees_the_end, None) is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_block_as_an_exception_and_the_next_one_does_not_interrupt_that(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    ended: list[str] = []

    @ended_by_signals()
    def task() -> None:
        try:
            signal.raise_signal(number)
        finally:
            signal.raise_signal(number)
            ended.append("the transaction")

    with pytest.raises(SystemExit) as raised:
        task()
    assert raised.value.code == 128 + number
    assert ended == ["the transaction"]
    assert signal.getsignal(number) is before


def test_nothing_is_installed_on_another_thread() -> None:
    seen: list[object] = []

    def task() -> None:
        with ended_by_signals():
            seen.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=task)
    thread.start()
    thread.join()
    assert seen == [before]


READ_AN_EMPTY_RANGE = """
import gc, time
from spark_groupsource.fetch.contract import FetchRange
from spark_groupsource.options.model import Options
from spark_groupsource.spark.task import RangePartition, TaskReader

options = Options.parse({"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.group.id": "g", "subscribe": "t"})
for _ in range(2):
    assert list(TaskReader(options.fetch_settings()).read(RangePartition((FetchRange("t", 0, 5, 5),)))) == []
    print(gc.get_freeze_count(), len(gc.get_objects()))
"""


def test_what_a_worker_has_imported_is_left_out_of_the_collection_after_each_task() -> None:
    shown = subprocess.run([sys.executable, "-c", READ_AN_EMPTY_RANGE], capture_output=True, text=True, check=True).stdout
    (frozen, left), (frozen_later, left_later) = (map(int, line.split()) for line in shown.splitlines())
    assert frozen > 10_000
    assert left < frozen / 10
    # Once: what the tasks themselves leave behind is collected as ever.
    assert frozen_later <= frozen
    assert left_later < frozen / 10
