"""What Prometheus and OpenMetrics scrape."""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from spark_groupsource.metrics.definitions import METRICS
from spark_groupsource.metrics.exposition import TallyCollector
from spark_groupsource.metrics.tally import Tally


def test_openmetrics_readers_take_it_too() -> None:
    registry = CollectorRegistry()
    registry.register(TallyCollector(Tally("g")))
    text = generate_openmetrics(registry).decode()  # type: ignore[no-untyped-call]
    families = {family.name for family in parse_openmetrics(text)}  # type: ignore[no-untyped-call]
    assert families == {metric.name.removesuffix("_total") for metric in METRICS}
