"""Defines every metric that a query's driver reports: name, kind, labels and meaning, and the function that returns its values.

server.py serves these metrics to Prometheus, and `make pages` writes the table in docs/metrics.md from them. Names end with the
unit, as is usual for Prometheus. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from spark_groupsource.brokers.broker_errors import COMMIT_ERRORS
from spark_groupsource.handoff.commit_record import OwedRange
from spark_groupsource.metrics.tally import Durations, Tally
from spark_groupsource.version import __version__

ERRORS = frozenset(error.__name__ for error in COMMIT_ERRORS.values())
"""The errors that are counted as 0 from the start, because Prometheus does not see an increase in a series that starts at 1."""


class Kind(Enum):
    """A metric's type in Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


QUERY = ("group",)
PARTITION = ("group", "topic", "partition")

Series = Iterable[tuple[tuple[object, ...], float]]
"""Values with their labels, without the group."""


@dataclass(frozen=True)
class Metric:
    """One metric. Its series differ in their `labels`. With PARTITION, each partition that the member owns has a series."""

    name: str
    meaning: str
    read: Callable[[Tally], Series | Durations | float | None]
    """Returns the metric's values: series, one number without further labels, `None` if absent, or `Durations` for a
    histogram."""
    labels: tuple[str, ...] = QUERY

    @property
    def kind(self) -> Kind:
        """The metric's type, derived from its name."""
        if self.name.endswith("_total"):
            return Kind.COUNTER
        return Kind.HISTOGRAM if self.name.endswith("_duration_seconds") else Kind.GAUGE


def _joined(tally: Tally, series: Series) -> Series:
    """Return the series if the member has joined its group, or no series otherwise."""
    return series if tally.assignment.generation >= 0 else []


def _held(tally: Tally) -> Sequence[OwedRange]:
    """Return the ranges that are held for other streams, excluding this stream's own."""
    return [entry for record in tally.records.values() for entry in record.owed if entry.stream != record.stream]


METRICS = (
    Metric(
        "groupkafka_member_info",
        "Always 1. The labels are the stream (its name in `groupkafka claims`), the member's id in the group, and this "
        "package's version. Absent until the query has joined the group.",
        lambda tally: _joined(tally, [((tally.stream, tally.assignment.member_id, __version__), 1)]),
        labels=(*QUERY, "stream", "member", "version"),
    ),
    Metric(
        "groupkafka_generation",
        "The member's generation; its epoch under KIP-848. It rises with each rebalance.",
        lambda tally: _joined(tally, [((), tally.assignment.generation)]),
    ),
    Metric(
        "groupkafka_partition_owned",
        "1 if the group has assigned the partition to this member; 0 if the group has asked for it back and the member is "
        "draining it.",
        lambda tally: _joined(
            tally,
            [(partition, partition not in tally.assignment.draining) for partition in sorted(tally.assignment.partitions)],
        ),
        labels=PARTITION,
    ),
    Metric(
        "groupkafka_partition_position_offset",
        "The next offset to claim. Every offset before it has been read, is in flight, or is held for another query.",
        lambda tally: [(partition, record.next) for partition, record in tally.records.items()],
        labels=PARTITION,
    ),
    Metric(
        "groupkafka_partition_committed_offset",
        "The group's committed offset: every record before it has been processed.",
        lambda tally: [(partition, record.offset) for partition, record in tally.records.items()],
        labels=PARTITION,
    ),
    Metric(
        "groupkafka_partition_end_offset",
        "The high watermark when the query last asked for it (`groupkafka_last_plan_timestamp_seconds`). With `read_committed`, "
        "the last stable offset.",
        lambda tally: [(partition, tally.ends[partition]) for partition in tally.records if partition in tally.ends],
        labels=PARTITION,
    ),
    Metric(
        "groupkafka_partition_lag_offsets",
        "Offsets from the committed offset to the end, as every lag tool counts them: offsets not claimed yet, offsets in "
        "flight, and everything above a held range. Computed with `groupkafka_partition_end_offset`.",
        lambda tally: [
            (partition, max(0, tally.ends[partition] - record.offset))
            for partition, record in tally.records.items()
            if partition in tally.ends
        ],
        labels=PARTITION,
    ),
    Metric(
        "groupkafka_partition_finished_lag_offsets",
        "Offsets between the committed offset and the position that are finished. They still count as lag, because the "
        "committed offset stays at the lowest claim. 0 if there are none.",
        lambda tally: [
            (partition, 0 if (lowest := record.lowest_claim) is None else lowest.finished_lag)
            for partition, record in tally.records.items()
        ],
        labels=PARTITION,
    ),
    Metric(
        "groupkafka_partition_lowest_claim_timestamp_seconds",
        "When the lowest claimed but unconfirmed range was claimed, in seconds since 1970 by the clock of the query that "
        "claimed it. The committed offset stays at the start of this range. `stream` is that query's stream: this query's own, "
        "for its micro-batch, or another's. Absent if nothing is claimed, or the time is unknown.",
        lambda tally: [
            ((*partition, lowest.claim.stream), lowest.claim.since)
            for partition, record in tally.records.items()
            if (lowest := record.lowest_claim) is not None and lowest.claim.since is not None
        ],
        labels=(*PARTITION, "stream"),
    ),
    Metric(
        "groupkafka_last_plan_timestamp_seconds",
        "When the query last asked for the ends of its partitions, in seconds since 1970. It asks between micro-batches, so "
        "the time since then is about how long the current micro-batch has been running.",
        lambda tally: tally.last_plan_at,
    ),
    Metric(
        "groupkafka_plan_duration_seconds",
        "How long it took to choose the offsets of a micro-batch (`latestOffset`), excluding calls that found nothing to read.",
        lambda tally: tally.planning,
    ),
    Metric(
        "groupkafka_planned_offsets_total",
        "Offsets chosen for micro-batches. On compacted topics, and on topics with transactions, there are fewer rows.",
        lambda tally: tally.planned_offsets,
    ),
    Metric(
        "groupkafka_claim_duration_seconds",
        "How long it took to claim the ranges of a micro-batch (`partitions`): a commit, and sometimes a wait for another "
        "member.",
        lambda tally: tally.claiming,
    ),
    Metric(
        "groupkafka_claimed_offsets_total",
        "Offsets given to Spark's tasks, counted once for each micro-batch. Higher than `groupkafka_planned_offsets_total` "
        "after a restart that reran a micro-batch, lower if another member has taken a range.",
        lambda tally: tally.claimed_offsets,
    ),
    Metric(
        "groupkafka_commit_duration_seconds",
        "How long a commit to the group took, whether or not it succeeded.",
        lambda tally: tally.committing,
    ),
    Metric(
        "groupkafka_commit_errors_total",
        "Failed commits, by the name of the error. `GenerationChanged` is a rebalance, and the query continues. After "
        "`CommitOutcomeUnknown` the query rejoins the group. `CommitRefused` makes the query fail.",
        lambda tally: [((error,), n) for error, n in sorted({**dict.fromkeys(ERRORS, 0), **tally.commit_errors}.items())],
        labels=(*QUERY, "error"),
    ),
    Metric(
        "groupkafka_rebalances_total",
        "Rebalance callbacks: `assigned`, possibly without a new partition; `revoked`; and `lost`, if the group removed the "
        "member or the topic was deleted.",
        lambda tally: [((kind,), tally.rebalances.get(kind, 0)) for kind in ("assigned", "revoked", "lost")],
        labels=(*QUERY, "kind"),
    ),
    Metric(
        "groupkafka_drain_duration_seconds",
        "How long the member drained a partition that the group had asked for, excluding partitions that had nothing in flight.",
        lambda tally: tally.draining,
    ),
    Metric(
        "groupkafka_drain_timeouts_total",
        "Drains that `handoff.drainTimeout` cut short. The ranges that were in flight remain claimed by this query.",
        lambda tally: tally.drain_timeouts,
    ),
    Metric(
        "groupkafka_in_flight_ranges",
        "Ranges that this query has in flight: claimed for its micro-batch, but not confirmed yet.",
        lambda tally: sum(len(record.open) for record in tally.records.values()),
    ),
    Metric(
        "groupkafka_in_flight_offsets",
        "Offsets in the ranges in flight.",
        lambda tally: sum(end - start for record in tally.records.values() for start, end in record.open),
    ),
    Metric(
        "groupkafka_in_flight_oldest_timestamp_seconds",
        "When the oldest range in flight was claimed, in seconds since 1970. Absent if nothing is in flight.",
        lambda tally: min(
            (record.claimed_at for record in tally.records.values() if record.open and record.claimed_at is not None),
            default=None,
        ),
    ),
    Metric(
        "groupkafka_held_ranges",
        "Ranges in this member's partitions that are held for other queries, which stopped or lost the partition before they "
        "confirmed them (`heldClaims`).",
        lambda tally: len(_held(tally)),
    ),
    Metric(
        "groupkafka_held_offsets",
        "Offsets in the held ranges.",
        lambda tally: sum(entry.range.size for entry in _held(tally)),
    ),
    Metric(
        "groupkafka_held_oldest_timestamp_seconds",
        "When the oldest held range was claimed, in seconds since 1970 by the clock of the query that claimed it. Absent if "
        "nothing is held.",
        lambda tally: min((entry.since for entry in _held(tally) if entry.since is not None), default=None),
    ),
)
"""All metrics, in the same order as in docs/metrics.md."""
