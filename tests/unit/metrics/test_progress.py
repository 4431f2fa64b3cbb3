"""What a `LagListener` counts in a registry of prometheus-client."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from spark_groupsource.metrics import progress


def test_a_second_listener_of_a_registry_goes_on_with_the_counters_of_the_first() -> None:
    registry = CollectorRegistry()
    for rows in (3, 4):
        progress.ProgressCounters.of(registry).add("orders", [("g", rows)], {})
    assert registry.get_sample_value(progress.ROWS, {"group": "g", "query": "orders"}) == 7
