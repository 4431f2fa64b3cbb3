"""What Prometheus scrapes: the metrics of definitions.py, filled with what a tally holds at that moment.

Everything is computed on the thread of the scrape, from values that nobody edits. It waits for no other thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from spark_groupsource.brokers.broker_errors import COMMIT_ERRORS
from spark_groupsource.handoff.commit_record import CommitRecord, OwedRange
from spark_groupsource.metrics import definitions as m
from spark_groupsource.metrics.tally import Durations, Tally
from spark_groupsource.partition import TopicPartition
from spark_groupsource.version import __version__

ERRORS = frozenset(error.__name__ for error in COMMIT_ERRORS.values())
"""Reported from the start, as 0: Prometheus sees no increase in a series that begins at 1."""

Series = Iterable[tuple[tuple[str, ...], float]]
"""Values, each with its labels other than the group."""


class TallyCollector(Collector):
    """Gives prometheus-client's registry every metric of METRICS, in that order."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def collect(self) -> Iterator[Family]:
        """Yield every metric. Called for each scrape, on its thread."""
        tally = self._tally
        series = dict(_series(tally))
        durations = _durations(tally)
        for metric in m.METRICS:
            if metric.kind is m.Kind.HISTOGRAM:
                yield _histogram(metric, tally.group, durations[metric])
            else:
                make = CounterMetricFamily if metric.kind is m.Kind.COUNTER else GaugeMetricFamily
                family = make(metric.name, metric.meaning, labels=metric.labels)
                for labels, value in series[metric]:
                    family.add_metric((tally.group, *labels), value)
                yield family


def _series(tally: Tally) -> Iterator[tuple[m.Metric, Series]]:
    assignment, records = tally.assignment, tally.records
    if assignment.generation < 0:
        yield from ((m.MEMBER, ()), (m.GENERATION, ()), (m.OWNED, ()))
    else:
        yield m.MEMBER, [((tally.stream, assignment.member_id, __version__), 1)]
        yield m.GENERATION, [((), assignment.generation)]
        yield m.OWNED, [(_labels(one), one not in assignment.draining) for one in sorted(assignment.partitions)]
    yield from _places(records, tally.ends)
    yield m.LAST_PLAN, _if_known(tally.last_plan_at)
    yield m.PLANNED, [((), tally.planned_offsets)]
    yield m.CLAIMED, [((), tally.claimed_offsets)]
    errors = dict.fromkeys(ERRORS, 0) | dict(tally.commit_errors)
    yield m.COMMIT_ERRORS, [((error,), count) for error, count in sorted(errors.items())]
    yield m.COMMIT_BYTES, [((), tally.commit_bytes)]
    yield m.REBALANCES, [((kind,), tally.rebalances.get(kind, 0)) for kind in ("assigned", "revoked", "lost")]
    yield m.DRAIN_TIMEOUTS, [((), tally.drain_timeouts)]
    yield from _unconfirmed(records.values())


def _places(
    records: Mapping[TopicPartition, CommitRecord], ends: Mapping[TopicPartition, int]
) -> Iterator[tuple[m.Metric, Series]]:
    owned = sorted(records)
    known = [(one, ends[one]) for one in owned if one in ends]
    yield m.POSITION, [(_labels(one), records[one].next) for one in owned]
    yield m.COMMITTED, [(_labels(one), records[one].offset) for one in owned]
    yield m.END, [(_labels(one), end) for one, end in known]
    yield m.LAG, [(_labels(one), max(0, end - records[one].next)) for one, end in known]
    held_back = {one: records[one].held_back for one in owned}
    yield m.FINISHED_LAG, [(_labels(one), held.finished_lag if held is not None else 0) for one, held in held_back.items()]
    claims = [(one, held.claim) for one, held in held_back.items() if held is not None]
    yield m.HELD_BACK_SINCE, [((*_labels(one), claim.stream), claim.since) for one, claim in claims if claim.since is not None]


def _unconfirmed(records: Iterable[CommitRecord]) -> Iterator[tuple[m.Metric, Series]]:
    open_sizes: list[int] = []
    open_since: list[int] = []
    held: list[OwedRange] = []
    for record in records:
        if record.open:
            open_sizes += (end - start for start, end in record.open)
            open_since += [record.claimed_at] if record.claimed_at is not None else []
        if record.owed:  # ranges owed to this very stream do not count: no other stream waits for them
            held += (entry for entry in record.owed if entry.stream != record.stream)
    yield m.OPEN_RANGES, [((), len(open_sizes))]
    yield m.OPEN_OFFSETS, [((), sum(open_sizes))]
    yield m.OPEN_SINCE, _if_known(min(open_since, default=None))
    yield m.HELD_RANGES, [((), len(held))]
    yield m.HELD_OFFSETS, [((), sum(entry.range.size for entry in held))]
    yield m.HELD_SINCE, _if_known(min((entry.since for entry in held if entry.since is not None), default=None))


def _durations(tally: Tally) -> Mapping[m.Metric, Durations]:
    return {
        m.PLANNING: tally.planning,
        m.CLAIMING: tally.claiming,
        m.COMMITTING: tally.committing,
        m.DRAINING: tally.draining,
    }


def _histogram(metric: m.Metric, group: str, durations: Durations) -> Family:
    below = 0
    buckets = []
    for bound, count in zip((*map(str, m.DURATION_BUCKETS_S), "+Inf"), durations.counts, strict=True):
        below += count
        buckets.append((bound, float(below)))
    family = HistogramMetricFamily(metric.name, metric.meaning, labels=metric.labels)
    family.add_metric((group,), buckets, durations.sum_s)
    return family


def _labels(partition: TopicPartition) -> tuple[str, ...]:
    return partition.topic, str(partition.partition)


def _if_known(value: float | None) -> Series:
    return [] if value is None else [((), value)]
