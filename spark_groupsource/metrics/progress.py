"""Counts the rows of a session's queries for a `LagListener`, in a prometheus-client registry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from prometheus_client import CollectorRegistry, Counter, Gauge

from spark_groupsource.sink.batch_report import BatchReport

ROWS = "groupkafka_listener_rows_total"
BYTES = "groupkafka_listener_bytes_total"
SINK_ROWS = "groupkafka_sink_rows_total"
SINK_COMMIT = "groupkafka_sink_commit_seconds"


class ProgressCounters:
    """Counts rows read, bytes observed and rows written, in a Prometheus registry."""

    _by_registry: ClassVar[WeakKeyDictionary[CollectorRegistry, ProgressCounters]] = WeakKeyDictionary()

    @classmethod
    def of(cls, registry: CollectorRegistry) -> ProgressCounters:
        """Return this registry's counters. The first listener creates them, and later sessions' listeners share them."""
        if registry not in cls._by_registry:
            cls._by_registry[registry] = cls(registry)
        return cls._by_registry[registry]

    def __init__(self, registry: CollectorRegistry) -> None:
        self._rows = Counter(ROWS, "Rows that Spark's tasks have read.", ["group", "query"], registry=registry)
        self._bytes = Counter(BYTES, "The `bytes` metric from DataFrame.observe.", ["query"], registry=registry)
        labels = ["query", "result"]
        self._sink_rows = Counter(
            SINK_ROWS, "Rows that the sink wrote, or skipped because they had been written before.", labels, registry=registry
        )
        self._sink_commit = Gauge(SINK_COMMIT, "The longest task commit in the last micro-batch.", ["query"], registry=registry)

    def add(self, query: str, rows: Iterable[tuple[str, int]], observed: Mapping[str, Mapping[str, Any]]) -> None:
        """Count the rows and bytes of a micro-batch.

        Args:
            query: The query's name, or its id.
            rows: Each source's group, with the number of rows that were read.
            observed: The micro-batch's `DataFrame.observe` metrics, by observation and column.
        """
        for group, count in rows:
            self._rows.labels(group, query).inc(count)
        for columns in observed.values():
            counted = columns.get("bytes")
            if isinstance(counted, int | float) and counted >= 0:
                self._bytes.labels(query).inc(counted)

    def add_written(self, query: str, report: BatchReport) -> None:
        """Count the rows that the sink has written in a micro-batch.

        Args:
            query: The query's name, or its id.
            report: The sink's report.
        """
        self._sink_rows.labels(query, "written").inc(report.written)
        self._sink_rows.labels(query, "skipped").inc(report.skipped)
        self._sink_commit.labels(query).set(report.commit_ms / 1000)
