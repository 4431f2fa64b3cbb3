"""Metrics as Prometheus would scrape them."""

from __future__ import annotations

import urllib.request
from collections.abc import Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from spark_groupsource.metrics.server import TallyCollector
from spark_groupsource.metrics.tally import Tally

Labels = frozenset[tuple[str, str]]


class Scrape:
    """Every sample of one scrape."""

    def __init__(self, text: str) -> None:
        self.samples: dict[str, dict[Labels, float]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                self.samples.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value

    def value(self, name: str, **labels: str) -> float:
        """Return the value of the one series with these labels, whatever others it has."""
        (value,) = self.series(name, **labels).values()
        return value

    def series(self, name: str, **labels: str) -> Mapping[Labels, float]:
        """Return the series of a metric that have these labels."""
        return {each: value for each, value in self.samples.get(name, {}).items() if labels.items() <= each}

    def by_partition(self, name: str) -> dict[int, float]:
        """Return the values of a metric of partitions, of one topic."""
        return {int(dict(labels)["partition"]): value for labels, value in self.samples.get(name, {}).items()}


def scraped(tally: Tally) -> Scrape:
    """Return the samples after they were written as text and parsed again."""
    registry = CollectorRegistry()
    registry.register(TallyCollector(tally))
    return Scrape(generate_latest(registry).decode())


def scraped_from(url: str) -> Scrape:
    with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 -- a server of the test
        return Scrape(answer.read().decode())
