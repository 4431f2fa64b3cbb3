"""`groupkafka top` in a process of its own, beside a group that changes and a broker that goes away."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from confluent_kafka import Producer

from devtools.broker import Cluster
from tests.conftest import MakeTopic
from tests.support.consumers import commit, joined
from tests.support.producing import send
from tests.support.waiting import until

SOME = r"(?!0(\.0)?/s)[0-9.]+"
"""A rate above zero: on a busy machine it may be below one."""


class Top:
    """A running `groupkafka top`, and what it has written so far."""

    def __init__(self, servers: str, group: str, *more: str) -> None:
        arguments = ["top", "--bootstrap-server", servers, "--group", group, "--interval", "0.3", *more]
        program = "from spark_groupsource.cli.main import main; main()"
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def until(self, pattern: str, after: int = 0) -> int:
        """Wait for a line with the pattern, and return how many lines there are by then."""
        try:
            until(lambda: self._has(pattern, after), pattern)
        except AssertionError as late:
            raise AssertionError(f"{late}; written by now: {self.lines}") from None
        return len(self.lines)

    def _has(self, pattern: str, after: int) -> bool:
        if any(re.search(pattern, line) for line in self.lines[after:]):
            return True
        if self.process.poll() is not None:
            assert self.process.stderr is not None
            pytest.fail(f"it has ended: {self.process.stderr.read()}")
        return False

    def interrupt(self) -> str:
        """Press Ctrl-C; returns its stderr."""
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(30) == 0
        self._reader.join(30)
        assert self.process.stderr is not None
        return self.process.stderr.read()


@contextmanager
def top(servers: str, group: str, *more: str) -> Iterator[Top]:
    running = Top(servers, group, *more)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.communicate()


@pytest.mark.long
def test_members_partitions_rates_and_a_broker_that_stops_are_plain_lines() -> None:
    with Cluster() as cluster:
        cluster.create_topic("orders", 2)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0})
        with (
            joined(cluster, "billing", "orders", 2, client_id="first") as first,
            top(cluster.bootstrap_servers, "billing") as run,
        ):
            run.until(r"^\S+T\S+Z member first@127\.0\.0\.1: orders-0 orders-1$")
            run.until("stable, 1 member, partitions 2, lag 0")
            for number in range(20):
                send(producer, "orders", b"x", partition=number % 2)
            assert producer.flush(30) == 0
            commit(first, "orders", 0, 4)
            partly = r"lag at least {} \(not known in 1 partition\), in flight 0, held 0, produced \S+/s, committed {}/s"
            run.until(partly.format(6, "-"))
            run.until(rf"produced {SOME}/s")
            commit(first, "orders", 0, 8)
            run.until(partly.format(2, SOME))
            seen = len(run.lines)
            other = threading.Thread(target=lambda: _join_for_a_while(cluster, run))
            other.start()
            until(lambda: first.poll(0.1) is None and not other.is_alive(), "the other member came and went")
            run.until("joined second@127.0.0.1", seen)
            run.until(r"moved orders-\d: first@127.0.0.1 -> second@127.0.0.1", seen)
            (node,) = cluster.nodes
            node.kill()
            down = run.until("no answer: ", seen)
            node.start()
            # Nobody polls the first member any more: if its session has ended meanwhile, only the commit's partition is shown.
            run.until(r"partitions [12], lag ", down)
            assert run.interrupt() == ""


def _join_for_a_while(cluster: Cluster, run: Top) -> None:
    with joined(cluster, "billing", "orders", 1, client_id="second"):
        run.until(r"moved orders-\d: first@127.0.0.1 -> second@127.0.0.1")


def test_as_json_each_look_is_an_object_and_a_group_that_is_not_there_yet_is_waited_for(
    topic: MakeTopic, cluster: Cluster
) -> None:
    name = topic()
    with top(cluster.bootstrap_servers, f"group-of-{name}", "--json") as run:
        run.until("There is no consumer group")
        with joined(cluster, f"group-of-{name}", name, 1):
            run.until('"state": "stable"')
        assert run.interrupt() == ""
    looks = [json.loads(line) for line in run.lines]
    assert looks[0].keys() == {"at", "group", "error"}
    stable = next(look for look in looks if look.get("state") == "stable")
    assert stable["partitions"][0]["topic"] == name
    assert stable["members"][0]["partitions"] == [{"topic": name, "partition": 0}]


def test_a_live_view_restores_the_terminal_on_sigterm(cluster: Cluster) -> None:
    ours, theirs = pty.openpty()
    arguments = ["top", "--bootstrap-server", cluster.bootstrap_servers, "--group", "none-yet"]
    run = subprocess.Popen(
        [sys.executable, "-m", "spark_groupsource", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm"},
    )
    try:
        os.close(theirs)
        shown = b""
        while b"no answer: There is no consumer group" not in shown:
            shown += os.read(ours, 65536)
        assert b"\x1b[?1049h" in shown
        run.terminate()
        with suppress(OSError):  # so Linux reports the end of a terminal
            while last := os.read(ours, 65536):
                shown += last
        assert run.wait(30) == 128 + signal.SIGTERM
        assert b"\x1b[?1049l" in shown
        assert b"Traceback" not in shown
    finally:
        run.kill()
        run.wait()
        os.close(ours)
