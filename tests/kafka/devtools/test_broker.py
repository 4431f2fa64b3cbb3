"""The development broker against real Kafka: what starts, what stops, what stays, and what must never be left behind."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.cimpl import NewTopic

from devtools.broker import BrokerStartError, Cluster, jars
from devtools.broker import cluster as cluster_module
from devtools.broker.addresses import Identity, choose_identity
from tests.support.producing import IN_ORDER
from tests.support.waiting import until

LIMIT_S = 60.0


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def records_of(bootstrap_servers: str, topic: str, count: int) -> list[bytes | None]:
    """Read `count` records of a topic as a member of a group."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": f"reader-{uuid.uuid4()}",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    values: list[bytes | None] = []

    def all_are_read() -> bool:
        values.extend(message.value() for message in consumer.consume(count, 0.2) if message.error() is None)
        return len(values) >= count

    try:
        consumer.subscribe([topic])
        until(all_are_read, f"{count} records of {topic}")
        return values
    finally:
        consumer.close()


def write(bootstrap_servers: str, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all", "log_level": 0, **IN_ORDER})
    for number in numbers:
        producer.produce(topic, str(number), str(number))
    assert producer.flush(LIMIT_S) == 0


class TestOneNode:
    def test_the_first_member_waits_for_no_other(self, admin: AdminClient) -> None:
        resource = ConfigResource(ConfigResource.Type.BROKER, "1")
        settings = admin.describe_configs([resource])[resource].result()
        assert settings["group.initial.rebalance.delay.ms"].value == "0"
        assert settings["auto.create.topics.enable"].value == "false"

    @pytest.mark.long
    def test_it_starts_in_silence_without_the_network_and_with_another_port_if_its_own_is_taken_meanwhile(
        self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(jars, "run_ivy", lambda *_: pytest.fail("the jars are in the cache: Ivy is not needed"))
        chosen: list[Identity] = []
        with socket.socket() as thief:

            def choose(count: int, port: int | None, earlier: Identity | None) -> Identity:
                chosen.append(choose_identity(count, port, earlier))
                if len(chosen) == 1:
                    thief.bind(("127.0.0.1", chosen[0].nodes[0].port))
                    thief.listen()
                return chosen[-1]

            monkeypatch.setattr(cluster_module, "choose_identity", choose)
            with Cluster() as second:
                assert second.bootstrap_servers == chosen[1].bootstrap_servers
                assert second.version == cluster.version
                folder = second.nodes[0].log.parent.parent
                assert folder.exists()
        assert not folder.exists()
        printed, logged = capfd.readouterr()
        # Producers of other tests, which last as long as this process, may log that a topic has changed.
        assert (printed, [line for line in logged.splitlines() if "|rdkafka#producer" not in line]) == ("", [])


@pytest.fixture(scope="module")
def own() -> Iterator[Cluster]:
    """A node that may be stopped, killed and paused: the shared one may not."""
    with Cluster() as running:
        yield running


@pytest.mark.long
class TestLifeOfANode:
    def test_port_and_data_survive_a_stop_a_kill_and_a_stop_of_a_paused_node(self, own: Cluster) -> None:
        own.create_topic("survives")
        node, address = own.nodes[0], own.bootstrap_servers

        def stop_paused() -> None:
            node.pause()
            node.stop()

        for begin, end in ((0, node.stop), (10, node.kill), (20, stop_paused)):
            write(address, "survives", range(begin, begin + 10))
            pid = node.pid
            end()
            assert not lives(pid)
            assert not node.running
            node.start()
            assert (node.pid != pid, own.bootstrap_servers) == (True, address)
        assert records_of(address, "survives", 30) == [str(number).encode() for number in range(30)]


class TestANamedDataFolder:
    def test_a_cluster_of_another_size_is_refused(self) -> None:
        earlier = choose_identity(1, None, None)
        with pytest.raises(BrokerStartError, match="size 1, not 3"):
            choose_identity(3, None, earlier)

    def test_damaged_state_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "cluster.json").write_text('{"ports": [1]}')
        with pytest.raises(BrokerStartError, match=r"cluster\.json"):
            Cluster(data_dir=tmp_path).start()


class TestFailures:
    def test_a_node_that_dies_reports_the_end_of_its_log(self) -> None:
        with pytest.raises(BrokerStartError, match=r"(?s)node\.log.*log\.retention\.ms") as caught:
            Cluster(config={"log.retention.ms": "for ever"}).start()
        log = Path(str(caught.value).split("its log, ")[1].split(":\n")[0])
        assert "for ever" in log.read_text()
        shutil.rmtree(log.parent.parent)

    def test_a_port_in_use_is_named(self) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            with pytest.raises(BrokerStartError, match=f"Port {port} of 127.0.0.1 is in use"):
                Cluster(port=port).start()

    @pytest.mark.parametrize("shape", [{"nodes": 2}, {"nodes": 3, "port": 9092}, {"nodes": 3, "protocols": ("SSL",)}], ids=str)
    def test_impossible_shapes_are_refused(self, shape: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="node"):
            Cluster(**shape)


# A process that starts a node, says what there is to kill and to remove, and then lives on or ends.
PARENT = """
    import os, sys, time
    from devtools.broker import Cluster

    cluster = Cluster()
    cluster.start()
    node = cluster.nodes[0]
    copy = 0
    {before}
    print(node.pid, node.log.parent.parent, copy, flush=True)
    {after}
"""
# The copy has the pipe that the watcher reads, and outlives its parent.
FORK = "copy = os.fork() or (time.sleep(600), os._exit(0))"


class TestTheParentsEnd:
    @pytest.mark.parametrize(
        ("before", "after", "number"),
        [
            pytest.param(
                f"{FORK}; node.pause()", "time.sleep(600)", signal.SIGKILL, id="killed-with-a-forked-copy-and-a-paused-node"
            ),
            pytest.param("", "sys.exit(0)", None, id="exit-without-stop", marks=pytest.mark.long),
        ],
    )
    def test_no_jvm_and_no_folder_is_left(self, before: str, after: str, number: signal.Signals | None) -> None:
        script = textwrap.dedent(PARENT).format(before=before, after=after)
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
            assert parent.stdout is not None
            pid, folder, copy = parent.stdout.readline().split()
            if number is not None:
                parent.send_signal(number)
            parent.wait(LIMIT_S)
            until(lambda: not lives(int(pid)), "the JVM has ended")
            until(lambda: not Path(folder).exists(), "the folder is deleted")
            if int(copy):
                os.kill(int(copy), signal.SIGKILL)


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux's kernel signals a child when its parent ends")
def test_no_jvm_is_left_when_its_watcher_is_killed(own: Cluster) -> None:
    node = own.nodes[0]
    assert node._watcher is not None
    os.kill(node._watcher.pid, signal.SIGKILL)
    until(lambda: not lives(node.pid), "the JVM has ended")
    assert not node.running


COMMAND = [sys.executable, "-m", "devtools.broker"]


class TestTheCommand:
    @pytest.mark.long
    def test_it_prints_the_address_and_ends_when_asked(self, tmp_path: Path) -> None:
        """Started again on its folder, it has the same address and the records of before."""
        addresses: list[str] = []
        for number in (signal.SIGINT, signal.SIGTERM):
            with subprocess.Popen(
                [*COMMAND, "--data", str(tmp_path / "data")],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            ) as process:
                assert process.stdout is not None
                key, address = process.stdout.readline().strip().split("=")
                assert key == "bootstrap.servers"
                if not addresses:
                    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
                    admin.create_topics([NewTopic("kept", 1)])["kept"].result(LIMIT_S)
                    write(address, "kept", range(2))
                assert records_of(address, "kept", 2) == [b"0", b"1"]
                # As a terminal does it: to the whole process group.
                os.killpg(process.pid, number)
                rest, said = process.communicate(timeout=LIMIT_S)
            assert (process.returncode, rest) == (0, "")
            assert "stopped" in said
            host, port = address.split(":")
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((host, int(port)))
            addresses.append(address)
        assert addresses[0] == addresses[1]

    def test_it_says_what_is_wrong_in_one_line(self) -> None:
        outcome = subprocess.run([*COMMAND, "--version", "new"], capture_output=True, text=True, check=False)
        assert (outcome.returncode, outcome.stdout) == (1, "")
        assert outcome.stderr == "Error: 'new' is not a Kafka version: use a version such as 4.1.0, or a series such as 4.1.\n"


@pytest.mark.versions
@pytest.mark.parametrize("version", ["3.9.1", "4.1"])
def test_other_versions_start_restart_and_serve_groups(version: str) -> None:
    with Cluster(version=version) as cluster:
        assert cluster.version.startswith(version)
        cluster.create_topic("orders", partitions=2)
        write(cluster.bootstrap_servers, "orders", range(20))
        cluster.nodes[0].kill()
        cluster.nodes[0].start()
        write(cluster.bootstrap_servers, "orders", range(20, 40))
        values = records_of(cluster.bootstrap_servers, "orders", 40)
        assert sorted(int(value or b"") for value in values) == list(range(40))
