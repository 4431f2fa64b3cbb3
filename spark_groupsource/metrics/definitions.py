"""Defines every metric that a query's driver reports: its name, kind, labels and meaning, and how it is read from a tally.

server.py serves this list to Prometheus, and `make pages` makes the table of docs/metrics.md from it. Units are in the names, as
is usual for Prometheus. The names of metrics that count offsets have no unit; their meaning mentions offsets. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from spark_groupsource.brokers.broker_errors import COMMIT_ERRORS
from spark_groupsource.handoff.commit_record import CommitRecord, HeldBack, OwedRange
from spark_groupsource.metrics.tally import Durations, Tally
from spark_groupsource.partition import TopicPartition
from spark_groupsource.version import __version__

ERRORS = frozenset(error.__name__ for error in COMMIT_ERRORS.values())
"""The errors that are reported from the start, as 0: Prometheus would not see the increase of a series that begins at 1."""


class Kind(Enum):
    """The type of a metric in Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


QUERY = ("group",)
PARTITION = ("group", "topic", "partition")

Series = Iterable[tuple[tuple[str, ...], float]]
"""Values, each with its labels other than the group."""


@dataclass(frozen=True)
class Metric:
    """One metric. `labels` distinguish its series. Series with PARTITION exist for the partitions that the member owns."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    meaning: str
    read: Callable[[Tally], Series | Durations]
    """Returns the values of the metric; `Durations` for a histogram."""


def _joined(tally: Tally, series: Series) -> Series:
    """Return the series once the member has joined its group, and none before."""
    return series if tally.assignment.generation >= 0 else []


def _one(value: float) -> Series:
    return [((), value)]


def _if_known(value: float | None) -> Series:
    return [] if value is None else _one(value)


def _labels(partition: TopicPartition) -> tuple[str, ...]:
    return partition.topic, str(partition.partition)


def _sorted(records: Mapping[TopicPartition, CommitRecord]) -> Sequence[tuple[TopicPartition, CommitRecord]]:
    return sorted(records.items(), key=lambda item: item[0])


def _with_ends(tally: Tally) -> Sequence[tuple[TopicPartition, CommitRecord]]:
    return [(partition, record) for partition, record in _sorted(tally.records) if partition in tally.ends]


def _held_back(tally: Tally) -> Sequence[tuple[TopicPartition, HeldBack | None]]:
    return [(partition, record.held_back) for partition, record in _sorted(tally.records)]


def _with_open(tally: Tally) -> Sequence[CommitRecord]:
    return [record for record in tally.records.values() if record.open]


def _held(tally: Tally) -> Sequence[OwedRange]:
    """Return the ranges that are held for other streams, without those owed to this stream itself."""
    return [entry for record in tally.records.values() for entry in record.owed or () if entry.stream != record.stream]


METRICS = (
    Metric(
        "groupkafka_member_info",
        Kind.GAUGE,
        (*QUERY, "stream", "member", "version"),
        "Always 1: the stream (one checkpoint, as `groupkafka claims` names it), the member's id in the group, and the "
        "version of this package. Absent until the group is joined.",
        lambda tally: _joined(tally, [((tally.stream, tally.assignment.member_id, __version__), 1)]),
    ),
    Metric(
        "groupkafka_generation",
        Kind.GAUGE,
        QUERY,
        "The member's generation; its epoch under KIP-848. It rises with each rebalance of the group.",
        lambda tally: _joined(tally, _one(tally.assignment.generation)),
    ),
    Metric(
        "groupkafka_partition_owned",
        Kind.GAUGE,
        PARTITION,
        "1: the group has given the partition to this member; 0: it has asked it back, and the member drains it.",
        lambda tally: _joined(
            tally,
            [
                (_labels(partition), partition not in tally.assignment.draining)
                for partition in sorted(tally.assignment.partitions)
            ],
        ),
    ),
    Metric(
        "groupkafka_partition_position_offset",
        Kind.GAUGE,
        PARTITION,
        "The next offset to claim. What lies before it was read, or is claimed: by this query, or by another one (held).",
        lambda tally: [(_labels(partition), record.next) for partition, record in _sorted(tally.records)],
    ),
    Metric(
        "groupkafka_partition_committed_offset",
        Kind.GAUGE,
        PARTITION,
        "The group's committed offset: the first one that is not known to be processed.",
        lambda tally: [(_labels(partition), record.offset) for partition, record in _sorted(tally.records)],
    ),
    Metric(
        "groupkafka_partition_end_offset",
        Kind.GAUGE,
        PARTITION,
        "The high watermark when the query last planned; under `read_committed` the last stable offset.",
        lambda tally: [(_labels(partition), tally.ends[partition]) for partition, _ in _with_ends(tally)],
    ),
    Metric(
        "groupkafka_partition_lag_offsets",
        Kind.GAUGE,
        PARTITION,
        "Offsets from the committed offset to the end, as every lag tool counts: what is not claimed yet, what is in flight, and "
        "everything above a held range. As the query last planned, see `groupkafka_last_plan_timestamp_seconds`.",
        lambda tally: [
            (_labels(partition), max(0, tally.ends[partition] - record.offset)) for partition, record in _with_ends(tally)
        ],
    ),
    Metric(
        "groupkafka_partition_finished_lag_offsets",
        Kind.GAUGE,
        PARTITION,
        "Offsets between the committed offset and the position that are finished. They are lag all the same, because the "
        "committed offset stays at a range that is not confirmed. 0 if there are none.",
        lambda tally: [
            (_labels(partition), held.finished_lag if held is not None else 0) for partition, held in _held_back(tally)
        ],
    ),
    Metric(
        "groupkafka_partition_lowest_claim_timestamp_seconds",
        Kind.GAUGE,
        (*PARTITION, "stream"),
        "When the range that holds the committed offset back was claimed, in seconds since 1970 by the clock of the query "
        "that did. The range starts at the committed offset. `stream` has claimed it: this query for its micro-batch, or "
        "another one. Absent when there is none, or the time is not known.",
        lambda tally: [
            ((*_labels(partition), held.claim.stream), held.claim.since)
            for partition, held in _held_back(tally)
            if held is not None and held.claim.since is not None
        ],
    ),
    Metric(
        "groupkafka_last_plan_timestamp_seconds",
        Kind.GAUGE,
        QUERY,
        "When the query last asked for the ends of its partitions, in seconds since 1970. Spark asks between micro-batches; "
        "how long ago it was is about the time that the running micro-batch has taken.",
        lambda tally: _if_known(tally.last_plan_at),
    ),
    Metric(
        "groupkafka_plan_duration_seconds",
        Kind.HISTOGRAM,
        QUERY,
        "How long a plan of a micro-batch took (`latestOffset`). Calls that found nothing to read are left out.",
        lambda tally: tally.planning,
    ),
    Metric(
        "groupkafka_planned_offsets_total",
        Kind.COUNTER,
        QUERY,
        "Offsets planned. As many rows, or fewer on compacted topics and those with transactions.",
        lambda tally: _one(tally.planned_offsets),
    ),
    Metric(
        "groupkafka_claim_duration_seconds",
        Kind.HISTOGRAM,
        QUERY,
        "How long it took to claim a micro-batch's ranges (`partitions`): one commit, and sometimes a wait for another member.",
        lambda tally: tally.claiming,
    ),
    Metric(
        "groupkafka_claimed_offsets_total",
        Kind.COUNTER,
        QUERY,
        "Offsets given to Spark's tasks, each micro-batch once. Higher than what was planned after a restart that ran a "
        "micro-batch again, lower when another member has taken a range.",
        lambda tally: _one(tally.claimed_offsets),
    ),
    Metric(
        "groupkafka_commit_duration_seconds",
        Kind.HISTOGRAM,
        QUERY,
        "How long a commit to the group took, whether or not it was taken.",
        lambda tally: tally.committing,
    ),
    Metric(
        "groupkafka_commit_errors_total",
        Kind.COUNTER,
        (*QUERY, "error"),
        "Commits that were not taken, by the error's name (errors.py). `GenerationChanged` is a rebalance and passes; "
        "after `CommitOutcomeUnknown` the query joins again; `CommitRefused` ends it.",
        lambda tally: [((error,), n) for error, n in sorted({**dict.fromkeys(ERRORS, 0), **tally.commit_errors}.items())],
    ),
    Metric(
        "groupkafka_rebalances_total",
        Kind.COUNTER,
        (*QUERY, "kind"),
        "Callbacks of the group: `assigned` (possibly with nothing new), `revoked`, and `lost`: expelled from the group, or the "
        "topic is deleted.",
        lambda tally: [((kind,), tally.rebalances.get(kind, 0)) for kind in ("assigned", "revoked", "lost")],
    ),
    Metric(
        "groupkafka_drain_duration_seconds",
        Kind.HISTOGRAM,
        QUERY,
        "How long partitions that the group asked back were held until their micro-batch was confirmed. Those that "
        "had nothing in flight are left out.",
        lambda tally: tally.draining,
    ),
    Metric(
        "groupkafka_drain_timeouts_total",
        Kind.COUNTER,
        QUERY,
        "Drains that `handoff.drainTimeout` ended: the ranges in flight stay claimed by this query.",
        lambda tally: _one(tally.drain_timeouts),
    ),
    Metric(
        "groupkafka_open_ranges",
        Kind.GAUGE,
        QUERY,
        "Ranges in flight: this query has claimed them for its micro-batch, and they are not confirmed yet.",
        lambda tally: _one(sum(len(record.open) for record in _with_open(tally))),
    ),
    Metric(
        "groupkafka_open_offsets",
        Kind.GAUGE,
        QUERY,
        "Offsets in those ranges.",
        lambda tally: _one(sum(end - start for record in _with_open(tally) for start, end in record.open)),
    ),
    Metric(
        "groupkafka_open_oldest_timestamp_seconds",
        Kind.GAUGE,
        QUERY,
        "When the oldest of them was claimed, in seconds since 1970. Absent when there is none.",
        lambda tally: _if_known(
            min((record.claimed_at for record in _with_open(tally) if record.claimed_at is not None), default=None)
        ),
    ),
    Metric(
        "groupkafka_held_ranges",
        Kind.GAUGE,
        QUERY,
        "Ranges in this member's partitions that are held for other queries: these have claimed them, and stopped or lost the "
        "partition before they were confirmed (`heldClaims`).",
        lambda tally: _one(len(_held(tally))),
    ),
    Metric(
        "groupkafka_held_offsets",
        Kind.GAUGE,
        QUERY,
        "Offsets in those ranges.",
        lambda tally: _one(sum(entry.range.size for entry in _held(tally))),
    ),
    Metric(
        "groupkafka_held_oldest_timestamp_seconds",
        Kind.GAUGE,
        QUERY,
        "When the oldest of them was claimed, in seconds since 1970 by the clock of the query that did. Absent when there is "
        "none.",
        lambda tally: _if_known(min((entry.since for entry in _held(tally) if entry.since is not None), default=None)),
    ),
)
"""Every metric, in the order of the page."""
