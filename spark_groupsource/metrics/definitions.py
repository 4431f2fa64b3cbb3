"""Every metric that a query's driver reports: name, kind, labels, meaning.

exposition.py makes from this list what Prometheus scrapes, and `make pages` the table of docs/metrics.md. Units are in the
names, as is usual for Prometheus. Metrics that count offsets have no unit in their names; their meaning says so. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What Prometheus does with a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


QUERY = ("group",)
PARTITION = ("group", "topic", "partition")


@dataclass(frozen=True)
class Metric:
    """One metric. `labels` distinguish its series. Series with PARTITION exist for the partitions that the member owns now."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    meaning: str


MEMBER = Metric(
    "groupkafka_member_info",
    Kind.GAUGE,
    (*QUERY, "stream", "member", "version"),
    "Always 1: the stream (one checkpoint, as `groupkafka claims` names it), the member's id in the group, and the version of "
    "this package. Absent until the group is joined.",
)
GENERATION = Metric(
    "groupkafka_generation",
    Kind.GAUGE,
    QUERY,
    "The member's generation; its epoch under KIP-848. It rises with each rebalance of the group.",
)
OWNED = Metric(
    "groupkafka_partition_owned",
    Kind.GAUGE,
    PARTITION,
    "1: the group has given the partition to this member; 0: it has asked it back, and the member drains it.",
)
POSITION = Metric(
    "groupkafka_partition_position_offset",
    Kind.GAUGE,
    PARTITION,
    "The next offset to claim; what lies before it is claimed by this query, or was read.",
)
COMMITTED = Metric(
    "groupkafka_partition_committed_offset",
    Kind.GAUGE,
    PARTITION,
    "The group's committed offset: the first one that is not known to be processed.",
)
END = Metric(
    "groupkafka_partition_end_offset",
    Kind.GAUGE,
    PARTITION,
    "The high watermark when the query last planned; under `read_committed` the last stable offset.",
)
LAG = Metric(
    "groupkafka_partition_lag_offsets",
    Kind.GAUGE,
    PARTITION,
    "Offsets from the position to the end: what is not claimed yet. As the query last planned, see "
    "`groupkafka_last_plan_timestamp_seconds`.",
)
FINISHED_LAG = Metric(
    "groupkafka_partition_finished_lag_offsets",
    Kind.GAUGE,
    PARTITION,
    "Offsets between the committed offset and the position that are finished. Lag tools count them all the same, because a range "
    "that is not confirmed holds the committed offset back. 0 if there are none.",
)
HELD_BACK_SINCE = Metric(
    "groupkafka_partition_held_back_timestamp_seconds",
    Kind.GAUGE,
    (*PARTITION, "stream"),
    "When the range that holds the committed offset back was claimed, in seconds since 1970 by the clock of the query that did. "
    "The range starts at the committed offset. `stream` has claimed it: this query for its micro-batch, or another one. Absent "
    "when there is none, or the time is not known.",
)
LAST_PLAN = Metric(
    "groupkafka_last_plan_timestamp_seconds",
    Kind.GAUGE,
    QUERY,
    "When the query last asked for the ends of its partitions, in seconds since 1970. Spark asks between micro-batches; how long "
    "ago it was is about the time that the running micro-batch has taken.",
)
PLANNING = Metric(
    "groupkafka_plan_duration_seconds",
    Kind.HISTOGRAM,
    QUERY,
    "How long a plan of a micro-batch took (`latestOffset`). Calls that found nothing to read are left out.",
)
PLANNED = Metric(
    "groupkafka_planned_offsets_total",
    Kind.COUNTER,
    QUERY,
    "Offsets planned. As many rows, or fewer on compacted topics and those with transactions.",
)
CLAIMING = Metric(
    "groupkafka_claim_duration_seconds",
    Kind.HISTOGRAM,
    QUERY,
    "How long it took to claim a micro-batch's ranges (`partitions`): one commit, and sometimes a wait for another member.",
)
CLAIMED = Metric(
    "groupkafka_claimed_offsets_total",
    Kind.COUNTER,
    QUERY,
    "Offsets given to Spark's tasks, each micro-batch once. Higher than what was planned after a restart that ran a micro-batch "
    "again, lower when another member has taken a range.",
)
COMMITTING = Metric(
    "groupkafka_commit_duration_seconds",
    Kind.HISTOGRAM,
    QUERY,
    "How long a commit to the group took, whether or not it was taken.",
)
COMMIT_ERRORS = Metric(
    "groupkafka_commit_errors_total",
    Kind.COUNTER,
    (*QUERY, "error"),
    "Commits that were not taken, by the error's name (errors.py). `GenerationChanged` is a rebalance and passes; "
    "`CommitOutcomeUnknown` and `CommitRefused` end the query.",
)
COMMIT_BYTES = Metric(
    "groupkafka_commit_bytes_total",
    Kind.COUNTER,
    QUERY,
    "About the bytes that the group's coordinator has written to the log of `__consumer_offsets` for this query's commits, "
    "before replication. They grow with the micro-batches, the partitions that have news, and the length of names.",
)
REBALANCES = Metric(
    "groupkafka_rebalances_total",
    Kind.COUNTER,
    (*QUERY, "kind"),
    "Callbacks of the group: `assigned` (possibly with nothing new), `revoked`, and `lost`: expelled from the group.",
)
DRAINING = Metric(
    "groupkafka_drain_duration_seconds",
    Kind.HISTOGRAM,
    QUERY,
    "How long partitions that the group asked back were held until their micro-batch was confirmed (`handoff=drain`). "
    "Those that had nothing in flight are left out.",
)
DRAIN_TIMEOUTS = Metric(
    "groupkafka_drain_timeouts_total",
    Kind.COUNTER,
    QUERY,
    "Drains that `handoff.drainTimeout` ended: the ranges in flight stay claimed by this query.",
)
OPEN_RANGES = Metric(
    "groupkafka_open_ranges",
    Kind.GAUGE,
    QUERY,
    "Ranges that this query has claimed and not confirmed: its micro-batch in flight.",
)
OPEN_OFFSETS = Metric("groupkafka_open_offsets", Kind.GAUGE, QUERY, "Offsets in those ranges.")
OPEN_SINCE = Metric(
    "groupkafka_open_oldest_timestamp_seconds",
    Kind.GAUGE,
    QUERY,
    "When the oldest of them was claimed, in seconds since 1970. Absent when there is none.",
)
HELD_RANGES = Metric(
    "groupkafka_held_ranges",
    Kind.GAUGE,
    QUERY,
    "Ranges in this member's partitions that other queries have claimed and not confirmed, and that are held for their restart "
    "(`outstandingClaims`).",
)
HELD_OFFSETS = Metric("groupkafka_held_offsets", Kind.GAUGE, QUERY, "Offsets in those ranges.")
HELD_SINCE = Metric(
    "groupkafka_held_oldest_timestamp_seconds",
    Kind.GAUGE,
    QUERY,
    "When the oldest of them was claimed, in seconds since 1970 by the clock of the query that did. Absent when there is none.",
)

METRICS = tuple(value for value in [*globals().values()] if isinstance(value, Metric))
"""Every metric, in the order of this file."""

DURATION_BUCKETS_S = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds (inclusive) of the histograms' buckets."""
