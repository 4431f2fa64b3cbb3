"""What Prometheus scrapes: the metrics of definitions.py, read from what a tally holds at that moment.

Everything is computed on the thread of the scrape, from values that nobody edits. It waits for no other thread.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from spark_groupsource.metrics.definitions import METRICS, Kind, Metric
from spark_groupsource.metrics.tally import DURATION_BUCKETS_S, Durations, Tally


class TallyCollector(Collector):
    """Gives prometheus-client's registry every metric of METRICS, in that order."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def collect(self) -> Iterator[Family]:
        """Yield every metric. Called for each scrape, on its thread."""
        tally = copy.copy(self._tally)  # so that all metrics see the same values
        for metric in METRICS:
            found = metric.read(tally)
            if isinstance(found, Durations):
                yield _histogram(metric, tally.group, found)
            else:
                make = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
                family = make(metric.name, metric.meaning, labels=metric.labels)
                for labels, value in found:
                    family.add_metric((tally.group, *labels), value)
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
