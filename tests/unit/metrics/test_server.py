"""The server that Prometheus scrapes: its port, its clients, and how it ends."""

from __future__ import annotations

import re
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from spark_groupsource.errors import OptionError
from spark_groupsource.metrics import server as metrics_server
from spark_groupsource.metrics.definitions import METRICS
from spark_groupsource.metrics.server import MetricsServer, TallyCollector, serve
from spark_groupsource.metrics.tally import Tally
from tests.support.options import BASE
from tests.support.scraping import scraped_from
from tests.support.waiting import until

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def server() -> Iterator[MetricsServer]:
    running = serve(Tally("g"), "127.0.0.1", 0)
    yield running
    running.close()


class TestTheServer:
    def test_serves_at_the_port_that_it_found(self, server: MetricsServer) -> None:
        assert server.url == f"http://127.0.0.1:{server.port}/metrics"
        assert scraped_from(server.url).value("groupkafka_planned_offsets_total", group="g") == 0

    def test_a_client_that_says_nothing_holds_up_nobody(self, server: MetricsServer) -> None:
        with socket.create_connection(("127.0.0.1", server.port)):
            assert scraped_from(server.url).samples

    def test_a_client_that_is_gone_keeps_no_thread_and_is_not_told_of(
        self, server: MetricsServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(metrics_server._Handler, "timeout", 0.2)
            with socket.create_connection(("127.0.0.1", server.port), timeout=60) as silent:
                assert silent.recv(1) == b"", "the server has hung up"
        with socket.create_connection(("127.0.0.1", server.port)) as rude:
            rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close() is a reset
        assert scraped_from(server.url).samples
        until(lambda: not [one for one in threading.enumerate() if "process_request" in one.name], "the threads have ended")
        assert capsys.readouterr().err == ""

    def test_a_taken_port_is_told_with_the_option_and_what_to_do(
        self, server: MetricsServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(metrics_server, "PORT_PATIENCE_S", 0.3)
        with pytest.raises(
            OptionError, match=f"metrics.port = {server.port}: the port is already in use on 127.0.0.1.*metrics.port=0"
        ):
            serve(Tally("g"), "127.0.0.1", server.port)

    def test_a_port_that_the_run_before_still_has_is_waited_for(self) -> None:
        before = serve(Tally("g"), "127.0.0.1", 0)
        leaving = threading.Timer(0.5, before.close)
        leaving.start()
        serve(Tally("h"), "127.0.0.1", before.port).close()
        leaving.join()

    @pytest.mark.parametrize(
        ("host", "reason"),
        [
            ("203.0.113.1", "not an address of the driver's machine"),
            ("there-is-no-such-host.invalid", "not an address of the driver's machine"),
        ],
    )
    def test_where_the_driver_cannot_listen_is_told_with_the_option(self, host: str, reason: str) -> None:
        with pytest.raises(OptionError, match=f"metrics.host = {re.escape(host)}: this is {reason}"):
            serve(Tally("g"), host, 0)

    def test_keeps_no_process_from_ending(self) -> None:
        code = (
            "import socket\n"
            "from spark_groupsource.metrics.server import serve\n"
            "from spark_groupsource.metrics.tally import Tally\n"
            "served = serve(Tally('g'), '127.0.0.1', 0)\n"
            "client = socket.create_connection(('127.0.0.1', served.port))\n"
        )
        begin = time.monotonic()
        subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, timeout=60, capture_output=True)
        assert time.monotonic() - begin < 30

    def test_is_not_imported_unless_it_is_asked_for(self) -> None:
        code = (
            "import sys, spark_groupsource.spark.datasource, spark_groupsource.spark.readers as reader\n"
            "from spark_groupsource.options.model import Options\n"
            f"running = reader.GroupKafkaStreamReader(Options.parse({BASE!r}, 'stream'))._running()\n"
            "print([name for name in sys.modules if 'prometheus' in name or '.metrics' in name])"
        )
        printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
        assert printed.stdout.strip() == "[]"


def test_openmetrics_readers_take_it_too() -> None:
    registry = CollectorRegistry()
    registry.register(TallyCollector(Tally("g")))
    text = generate_openmetrics(registry).decode()  # type: ignore[no-untyped-call]
    families = {family.name for family in parse_openmetrics(text)}  # type: ignore[no-untyped-call]
    assert families == {metric.name.removesuffix("_total") for metric in METRICS}
