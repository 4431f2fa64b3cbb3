"""The end of a task's rows, as a worker of Spark sees it: proven by Spark's own mark, and by nothing else."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import IO, Any

import pyarrow as pa
import pytest

from spark_groupsource.errors import InputIncomplete
from spark_groupsource.spark.worker_socket import sees_the_end, whole

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
