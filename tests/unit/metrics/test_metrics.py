"""The metrics: their list, and the pages and the dashboard that are made after it; what is counted; the server."""

from __future__ import annotations

import itertools
import json
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

from spark_groupsource.errors import CommitRefused, GenerationChanged, OptionError
from spark_groupsource.handoff.commit_record import CommitRecord, OpenRange, OwedRange
from spark_groupsource.metrics import progress
from spark_groupsource.metrics import server as metrics_server
from spark_groupsource.metrics.definitions import METRICS, Kind
from spark_groupsource.metrics.exposition import TallyCollector
from spark_groupsource.metrics.server import MetricsServer, serve
from spark_groupsource.metrics.tally import COMMIT_BYTES, OFFSET_BYTES, Durations, Tally
from spark_groupsource.options.model import Options
from spark_groupsource.partition import OffsetRange, TopicPartition
from spark_groupsource.timeouts import PORT_PATIENCE_S
from tests.support.options import BASE
from tests.support.scraping import scraped, scraped_from
from tests.support.waiting import until
from tools.pages import with_metrics

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
DASHBOARD = json.loads((ROOT / "conf" / "grafana-dashboard.json").read_text(encoding="utf-8"))


def test_a_second_listener_of_a_registry_goes_on_with_the_counters_of_the_first() -> None:
    registry = CollectorRegistry()
    for rows in (3, 4):
        progress.ProgressCounters.of(registry).add("orders", [("g", rows)], {})
    assert registry.get_sample_value(progress.ROWS, {"group": "g", "query": "orders"}) == 7


class TestTheList:
    def test_names_are_as_prometheus_has_them(self) -> None:
        assert len({metric.name for metric in METRICS}) == len(METRICS)
        for metric in METRICS:
            assert re.fullmatch(r"groupkafka(_[a-z]+)+", metric.name)
            assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
            assert metric.kind is not Kind.HISTOGRAM or metric.name.endswith("_seconds")
            assert metric.labels[0] == "group"
            assert metric.meaning.endswith(".")

    def test_the_page_has_its_table(self) -> None:
        assert with_metrics(PAGE) == PAGE, "run `make pages`"
        assert with_metrics(PAGE.replace(f"| `{METRICS[3].name}` |", "| `groupkafka_not_a_metric` |")) == PAGE

    def test_the_page_names_no_other_metric(self) -> None:
        assert named_in(PAGE) == {metric.name for metric in METRICS} | {progress.ROWS, progress.BYTES}

    def test_the_page_says_how_long_a_port_is_waited_for(self) -> None:
        text = " ".join(PAGE.split())
        assert f"after {PORT_PATIENCE_S:.0f} seconds" in text

    def test_the_dashboard_shows_no_metric_that_there_is_not(self) -> None:
        panels = DASHBOARD["panels"]
        expressions = [target["expr"] for panel in panels for target in panel.get("targets", [])]
        expressions += [variable["query"]["query"] for variable in DASHBOARD["templating"]["list"] if variable["type"] == "query"]
        shown = named_in("\n".join(expressions))
        assert len(shown) > 20
        assert shown <= {metric.name for metric in METRICS}

    def test_the_dashboards_panels_have_numbers_and_places_of_their_own(self) -> None:
        panels = DASHBOARD["panels"]
        assert len({panel["id"] for panel in panels}) == len(panels)
        cells = [
            (place["x"] + x, place["y"] + y)
            for place in (panel["gridPos"] for panel in panels)
            for x in range(place["w"])
            for y in range(place["h"])
        ]
        assert len(set(cells)) == len(cells)
        assert max(x for x, _ in cells) < 24


def named_in(text: str) -> set[str]:
    """Names of metrics, those of histograms without what Prometheus appends."""
    histograms = {metric.name for metric in METRICS if metric.kind is Kind.HISTOGRAM}
    found = set(re.findall(r"\bgroupkafka_[a-z_]+[a-z]\b", text))
    return {shorter if (shorter := re.sub("_(bucket|sum|count)$", "", name)) in histograms else name for name in found}


class TestTheOptions:
    def test_a_port_is_served_on_this_machine_only_unless_a_host_is_given(self) -> None:
        options = Options.parse({**BASE, "metrics.port": "9400"}, "stream")
        assert (options.metrics_host, options.metrics_port) == ("127.0.0.1", 9400)

    @pytest.mark.parametrize("host", ["0.0.0.0", "::", "::1", "driver-1.example.com"])  # noqa: S104
    def test_a_host_is_a_name_or_an_address(self, host: str) -> None:
        assert Options.parse({**BASE, "metrics.port": "0", "metrics.host": host}, "stream").metrics_host == host

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"metrics.port": "65536"}, "metrics.port = '65536': a whole number from 0 to 65535"),
            (
                {"metrics.port": "1", "metrics.host": "localhost:9400"},
                "metrics.host = 'localhost:9400': the name or address of a host",
            ),
            ({"metrics.port": "1", "metrics.host": " "}, "metrics.host = ' ': the name or address of a host"),
            ({"metrics.host": "0.0.0.0"}, "metrics.host has no effect without metrics.port"),  # noqa: S104
        ],
    )
    def test_what_is_wrong_is_told(self, given: dict[str, str], message: str) -> None:
        with pytest.raises(OptionError, match=re.escape(message)):
            Options.parse({**BASE, **given}, "stream")

    def test_a_missing_package_is_told_with_its_command_before_anything_starts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "prometheus_client", None)
        with pytest.raises(OptionError, match=re.escape("pip install 'spark-groupsource[metrics]'")):
            Options.parse({**BASE, "metrics.port": "9400"}, "stream")
        assert Options.parse(BASE, "stream").metrics_port is None, "nothing is served unless a port is given"

    def test_nothing_is_imported_unless_they_are_asked_for(self) -> None:
        code = (
            "import sys, spark_groupsource.spark.datasource, spark_groupsource.spark.stream_reader as reader\n"
            "from spark_groupsource.options.model import Options\n"
            f"running = reader.GroupKafkaStreamReader(Options.parse({BASE!r}, 'stream'))._running()\n"
            "print([name for name in sys.modules if 'prometheus' in name or '.metrics' in name])"
        )
        printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
        assert printed.stdout.strip() == "[]"


class TestWhatIsCounted:
    @pytest.mark.parametrize(("seconds", "bucket"), [(0.0, 0), (0.002, 0), (0.0021, 1), (60.0, 13), (61.0, 14)])
    def test_a_duration_falls_in_the_first_bucket_that_is_not_below_it(self, seconds: float, bucket: int) -> None:
        durations = Durations().with_one(seconds)
        assert [place for place, count in enumerate(durations.counts) if count] == [bucket]
        assert durations.sum_s == seconds
        assert sum(Durations().counts) == 0, "replaced, not edited"

    def test_before_the_group_is_joined_there_is_no_partition_and_nothing_is_known(self) -> None:
        scrape = scraped(Tally("g"))
        assert not scrape.series("groupkafka_member_info")
        assert not scrape.series("groupkafka_last_plan_timestamp_seconds")
        assert scrape.value("groupkafka_rebalances_total", kind="lost") == 0
        assert scrape.value("groupkafka_held_ranges") == 0

    def test_a_plan_that_finds_nothing_is_no_plan_but_a_look(self) -> None:
        tally = Tally("g", wall_clock=lambda: 1000.0)
        partition = TopicPartition("t", 0)
        tally.planned({partition: 5}, 0.3, None)
        tally.planned({partition: 9}, 0.2, {partition: (OffsetRange(1, 3), OffsetRange(5, 9))})
        scrape = scraped(tally)
        assert scrape.value("groupkafka_last_plan_timestamp_seconds", group="g") == 1000
        assert scrape.value("groupkafka_plan_duration_seconds_count") == 1
        assert scrape.value("groupkafka_plan_duration_seconds_sum") == 0.2
        assert scrape.value("groupkafka_plan_duration_seconds_bucket", le="0.1") == 0
        assert scrape.value("groupkafka_plan_duration_seconds_bucket", le="0.25") == 1
        assert scrape.value("groupkafka_plan_duration_seconds_bucket", le="+Inf") == 1
        assert scrape.value("groupkafka_planned_offsets_total") == 6

    def test_a_claim_counts_once_if_spark_asks_for_it_again_and_not_before_the_first_plan(self) -> None:
        tally = Tally("g")
        tally.claimed(-1, 0.1, {})
        for plan, end in ((0, 10), (0, 10), (1, 15)):
            tally.claimed(plan, 0.1, {TopicPartition("t", 0): (OffsetRange(0, end),)})
        scrape = scraped(tally)
        assert scrape.value("groupkafka_claimed_offsets_total") == 25
        assert scrape.value("groupkafka_claim_duration_seconds_count") == 2

    def test_commits_are_timed_and_refused_ones_counted_by_their_error(self) -> None:
        tally = Tally("g", clock=itertools.count(100.0, 0.5).__next__)  # each commit takes half a second
        with tally.commit():
            pass
        for error in (GenerationChanged(), GenerationChanged(), CommitRefused()):
            with pytest.raises(type(error)), tally.commit():
                raise error
        scrape = scraped(tally)
        assert scrape.value("groupkafka_commit_duration_seconds_count") == 4
        assert scrape.value("groupkafka_commit_duration_seconds_sum") == 2
        assert scrape.value("groupkafka_commit_errors_total", error="GenerationChanged") == 2
        assert scrape.value("groupkafka_commit_errors_total", error="CommitRefused") == 1

    def test_the_bytes_of_commits_that_were_taken_are_counted(self) -> None:
        tally = Tally("gr\u00fcn")
        assert scraped(tally).value("groupkafka_commit_bytes_total") == 0
        tally.committed({TopicPartition("t", 0): "{}", TopicPartition("orders", 1): "\u00fc"})
        assert scraped(tally).value("groupkafka_commit_bytes_total") == COMMIT_BYTES + 2 * (OFFSET_BYTES + 5) + 1 + 2 + 6 + 2

    def test_what_is_open_and_what_is_held_for_whom_since_when(self) -> None:
        mine = CommitRecord(stream="me", logged=3, done=2, next=30, open=(OpenRange(20, 30),), claimed_at=500)
        owed = (OwedRange("other", 7, 10, 20, 400), OwedRange("other", 7, 30, 35), OwedRange("me", 2, 50, 60, 300))
        theirs = CommitRecord(stream="me", logged=3, done=2, next=90, owed=owed)
        tally = Tally("g")
        tally.holds({TopicPartition("t", 0): mine, TopicPartition("t", 1): theirs})
        scrape = scraped(tally)
        assert scrape.value("groupkafka_open_ranges") == 1
        assert scrape.value("groupkafka_open_offsets") == 10
        assert scrape.value("groupkafka_open_oldest_timestamp_seconds") == 500
        assert scrape.value("groupkafka_held_ranges") == 2
        assert scrape.value("groupkafka_held_offsets") == 15
        assert scrape.value("groupkafka_held_oldest_timestamp_seconds") == 400
        assert scrape.by_partition("groupkafka_partition_position_offset") == {0: 30, 1: 90}
        assert scrape.by_partition("groupkafka_partition_committed_offset") == {0: 20, 1: 10}
        assert not scrape.series("groupkafka_partition_lag_offsets"), "no end is known"

    def test_what_holds_a_committed_offset_back_and_how_much_is_finished_above_it(self) -> None:
        left = (OwedRange("b", 7, 10, 20, 400),)
        owed = CommitRecord(stream="me", logged=3, done=2, next=90, open=(OpenRange(80, 90),), owed=left, claimed_at=500)
        unknown = CommitRecord(stream="me", logged=3, done=3, next=30, owed=(OwedRange("c", 7, 10, 20),))
        in_flight = CommitRecord(stream="me", logged=3, done=2, next=30, open=(OpenRange(20, 30),), claimed_at=600)
        tally = Tally("g")
        idle = CommitRecord(stream="me", logged=3, done=3, next=30)
        tally.holds({TopicPartition("t", number): record for number, record in enumerate((owed, unknown, in_flight, idle))})
        scrape = scraped(tally)
        assert scrape.by_partition("groupkafka_partition_finished_lag_offsets") == {0: 60, 1: 10, 2: 0, 3: 0}
        assert scrape.by_partition("groupkafka_partition_held_back_timestamp_seconds") == {0: 400, 2: 600}
        assert scrape.value("groupkafka_partition_held_back_timestamp_seconds", partition="0", stream="b") == 400
        assert scrape.value("groupkafka_partition_held_back_timestamp_seconds", partition="2", stream="me") == 600

    def test_an_end_below_the_position_is_no_lag(self) -> None:
        tally = Tally("g")
        partition = TopicPartition("t", 0)
        tally.holds({partition: CommitRecord(stream="me", logged=0, done=0, next=30)})
        tally.planned({partition: 20, TopicPartition("t", 1): 50}, 0.1, None)
        scrape = scraped(tally)
        assert scrape.by_partition("groupkafka_partition_lag_offsets") == {0: 0}
        assert scrape.by_partition("groupkafka_partition_end_offset") == {0: 20}, "of owned partitions only"

    def test_openmetrics_readers_take_it_too(self) -> None:
        registry = CollectorRegistry()
        registry.register(TallyCollector(Tally("g")))
        text = generate_openmetrics(registry).decode()  # type: ignore[no-untyped-call]
        families = {family.name for family in parse_openmetrics(text)}  # type: ignore[no-untyped-call]
        assert families == {metric.name.removesuffix("_total") for metric in METRICS}


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
        monkeypatch.setattr(metrics_server._Handler, "timeout", 0.2)
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as silent:
            assert silent.recv(1) == b"", "the server has hung up"
        with socket.create_connection(("127.0.0.1", server.port)) as rude:
            rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close() is a reset
        assert scraped_from(server.url).samples
        until(
            lambda: not [thread for thread in threading.enumerate() if "process_request" in thread.name], "the threads have ended"
        )
        assert capsys.readouterr().err == ""

    def test_a_taken_port_is_told_with_the_option_and_what_to_do(
        self, server: MetricsServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(metrics_server, "PORT_PATIENCE_S", 0.3)
        with pytest.raises(OptionError, match=f"metrics.port = {server.port}: the port is taken on 127.0.0.1.*metrics.port=0"):
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
            ("203.0.113.1", "no address of the driver's machine"),
            ("there-is-no-such-host.invalid", "no address of the driver's machine"),
            ("a..b", "no name of a host"),
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
