"""Serves the metrics to Prometheus over HTTP, in the runner's process. Its threads are daemons, so they end with the process."""

from __future__ import annotations

import contextlib
import copy
import errno
import logging
import socket
import threading
from collections.abc import Iterator
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from spark_groupsource.errors import OptionError
from spark_groupsource.metrics.definitions import METRICS, Kind, Metric
from spark_groupsource.metrics.tally import DURATION_BUCKETS_S, Durations, Tally
from spark_groupsource.patience import Deadline

log = logging.getLogger(__name__)

PORT_PATIENCE_S = 30.0
"""How long to wait for a port, in seconds. When Spark restarts a query, the previous run's process may still be leaving the
group. It may take REQUEST_TIMEOUT_S until the process handles the signal, and then AT_STOP_S and LEAVE_S."""

SCRAPE_SILENCE_S = 30
"""How long a client of the metrics port may neither send nor read anything, in seconds. A scrape takes milliseconds."""


class _Handler(WSGIRequestHandler):
    """Answers one scrape without logging it.

    The library's own handler waits forever for a client that connected and vanished. Each such client would keep a thread and a
    socket open in the runner.
    """

    timeout = SCRAPE_SILENCE_S

    def handle(self) -> None:
        with contextlib.suppress(OSError):  # the client has disconnected
            super().handle()

    def log_message(self, *words: object) -> None:
        """Log nothing, because a line for each scrape would fill the driver's log."""


class MetricsServer:
    """Serves one run's metrics until `close` is called or the process ends."""

    def __init__(self, server: WSGIServer, thread: threading.Thread) -> None:
        server.RequestHandlerClass = _Handler
        self._server = server
        self._thread = thread
        host, self.port = server.server_address[:2]
        self.host = host if isinstance(host, str) else host.decode()

    @property
    def url(self) -> str:
        """The address for Prometheus to scrape."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}/metrics"

    def close(self) -> None:
        """Free the port within half a second, without waiting for a scrape that is being answered."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def serve(tally: Tally, host: str, port: int) -> MetricsServer:
    """Serve the metrics of `tally`. Port 0 means any free port.

    Raises:
        OptionError: another process holds the port for longer than PORT_PATIENCE_S, or this machine cannot listen there.
    """
    registry = CollectorRegistry()
    registry.register(TallyCollector(tally))
    try:
        started = Deadline(PORT_PATIENCE_S).retry(lambda: start_http_server(port, host, registry), _is_taken)
    except OSError as error:
        raise _cannot_listen(error, host, port) from None
    served = MetricsServer(*started)
    if port:
        log.info("metrics at %s", served.url)
    else:  # a warning, because only this line shows the port, and by default Python shows only warnings and errors
        log.warning("metrics at %s", served.url)
    return served


def _is_taken(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno == errno.EADDRINUSE


def _cannot_listen(error: OSError, host: str, port: int) -> OptionError:
    if _is_taken(error):
        return OptionError(
            f"metrics.port = {port}: the port is already in use on {host}, by another source or another process, so this query "
            "fails. Each source serves its own metrics. Give each its own port, or set metrics.port=0 for a free port, which "
            "the log shows."
        )
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return OptionError(
            f"metrics.host = {host}: this is not an address of the driver's machine ({error.strerror}), so this query fails. Set "
            "it to an address of that machine."
        )
    return OptionError(
        f"metrics.port = {port}, metrics.host = {host}: the driver cannot listen there ({error.strerror}), so this query fails. "
        "Choose another port."
    )


class TallyCollector(Collector):
    """Provides the metrics in METRICS to prometheus-client's registry, in the same order.

    It runs on the scrape's thread without waiting for other threads, because a tally's values are replaced, never modified.
    """

    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def collect(self) -> Iterator[Family]:
        """Yield every metric. Called for each scrape, on its thread."""
        tally = copy.copy(self._tally)  # so that all metrics in a scrape have the same values
        for metric in METRICS:
            found = metric.read(tally)
            if isinstance(found, Durations):
                yield _histogram(metric, tally.group, found)
            else:
                make = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
                family = make(metric.name, metric.meaning, labels=metric.labels)
                series = [((), found)] if isinstance(found, int | float) else found or ()
                for labels, value in series:
                    family.add_metric((tally.group, *map(str, labels)), value)
                yield family


def _histogram(metric: Metric, group: str, durations: Durations) -> Family:
    below = 0
    buckets = []
    for bound, count in zip((*map(str, DURATION_BUCKETS_S), "+Inf"), durations.counts, strict=True):
        below += count
        buckets.append((bound, float(below)))
    family = HistogramMetricFamily(metric.name, metric.meaning, labels=metric.labels)
    family.add_metric((group,), buckets, durations.sum_s)
    return family
