"""What has a session's `LagListener` counted, for a registry of prometheus-client?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter

ROWS = "groupkafka_listener_rows_total"
BYTES = "groupkafka_listener_bytes_total"


class ProgressCounters:
    """Counts the rows that Spark's tasks have read, and the bytes that the query has observed."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._rows = Counter(ROWS, "Rows that Spark's tasks have read.", ["group", "query"], registry=registry)
        self._bytes = Counter(BYTES, "What DataFrame.observe counted as `bytes`.", ["query"], registry=registry)

    def add(self, query: str, rows: Iterable[tuple[str, int]], observed: Mapping[str, Mapping[str, Any]]) -> None:
        """Add a micro-batch.

        Args:
            query: The query's name, or its id.
            rows: A group and the rows that were read, for each source.
            observed: What `DataFrame.observe` counted in the micro-batch, by its name and the columns' names.
        """
        for group, count in rows:
            self._rows.labels(group, query).inc(count)
        for columns in observed.values():
            counted = columns.get("bytes")
            if isinstance(counted, int | float) and counted >= 0:
                self._bytes.labels(query).inc(counted)
