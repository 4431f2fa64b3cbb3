"""Chooses the micro-batch and the offsets to migrate from a checkpoint of Spark's own Kafka source. Pure.

Spark's Kafka source writes an offset as `{topic:{partition:offset}}` (KafkaSourceOffset). Each offset is the first one after the
micro-batch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from spark_groupsource.checkpoint.offset_log import offsets_by_stream
from spark_groupsource.errors import OffsetError, OptionError, UncommittedBatch
from spark_groupsource.options.values import TOPIC_NAME, offsets_value
from spark_groupsource.partition import TopicPartition, topics_of

NO_OFFSET = "-"
"""The offset log's line for a source that has no offset yet."""

REREAD = "reread"
"""The `--uncommitted` value that makes the new query reread the last micro-batch."""

SKIP = "skip"
"""The `--uncommitted` value that makes the new query continue after the last micro-batch."""


class LastBatches(NamedTuple):
    """The last micro-batch in the commit log, and the last one in the offset log."""

    committed: int
    planned: int


def last_batches(offsets: Collection[int], commits: Collection[int]) -> LastBatches:
    """Return a checkpoint's last committed and last planned micro-batches.

    Args:
        offsets: the numbers of the files in `offsets`.
        commits: the numbers of the files in `commits`.

    Raises:
        OffsetError: No micro-batch has been committed, or a file is missing.
    """
    if not commits:
        raise OffsetError(
            "The checkpoint has no committed micro-batch, so there is nothing to migrate. Run the old query until it has "
            "committed one. Or, if it has written nothing yet, start the groupkafka query with the old query's startingOffsets."
        )
    committed = max(commits)
    if committed not in offsets:
        raise OffsetError(
            f"The checkpoint is incomplete: it has the file commits/{committed}, but not offsets/{committed}, so the offsets of "
            "its last micro-batch are unknown. Nothing was changed. Restore the missing file, or start the groupkafka query "
            "with startingOffsets."
        )
    return LastBatches(committed, max(offsets))


def batch_to_carry(last: LastBatches, uncommitted: str | None) -> int:
    """Return the micro-batch whose end offsets are migrated.

    Args:
        last: the checkpoint's last micro-batches.
        uncommitted: what to do with a micro-batch that was not committed: `reread`, `skip`, or `None` if the user did not choose.

    Raises:
        UncommittedBatch: The last micro-batch was not committed, and `uncommitted` is `None`.
    """
    if last.planned == last.committed or uncommitted == REREAD:
        return last.committed
    if uncommitted == SKIP:
        return last.planned
    first = last.committed + 1
    batches = f"Micro-batch {last.planned} was" if first == last.planned else f"Micro-batches {first} to {last.planned} were"
    raise UncommittedBatch(
        f"{batches} started but not committed, because the query was stopped in the middle. Its output may contain all, some or "
        "none of these records. Nothing was changed. Do one of these:\n"
        "  1. Restart the old query from this checkpoint, and let it finish them. With trigger(availableNow=True), it stops "
        "after that. Then migrate. No record is lost or duplicated.\n"
        "  2. Check which of these records the output contains.\n"
        f"     None: use --uncommitted {REREAD}. The groupkafka query will read them.\n"
        f"     All: use --uncommitted {SKIP}. The groupkafka query will continue after them. (Spark's file sink contains all of "
        f"them if there is a file _spark_metadata/{last.planned} or _spark_metadata/{last.planned}.compact.)\n"
        f"     Some: {REREAD} duplicates these records, and {SKIP} loses the others."
    )


def kafka_offsets(text: str) -> dict[TopicPartition, int] | None:
    """Return the offset after each partition's last record if Spark's own Kafka source wrote this text, else `None`."""
    try:
        offsets = offsets_value()(text)
    except ValueError:
        return None
    if isinstance(offsets, str) or any(
        offset < 0 or not TOPIC_NAME.fullmatch(partition.topic) for partition, offset in offsets.items()
    ):
        return None
    return offsets


def choose_source(lines: Mapping[str, str], chosen: str | None) -> tuple[str, dict[TopicPartition, int]]:
    """Return the id of the Kafka source to migrate, and its offsets.

    Args:
        lines: the result of `checkpoint.offset_log.source_lines`.
        chosen: the id of the source; `None` if the query has only one.

    Raises:
        OptionError: There are several sources and none was chosen, or the chosen one is not a Kafka source.
        OffsetError: There is no Kafka source.
    """
    kafka = {source: offsets for source, line in lines.items() if (offsets := kafka_offsets(line)) is not None}
    listed = "".join(f"\n  --source {source}  {', '.join(sorted(topics_of(offsets)))}" for source, offsets in kafka.items())
    if chosen is not None:
        if chosen not in kafka:
            raise OptionError(
                f"--source {chosen} is not a Kafka source with offsets. The query's Kafka sources:{listed or ' none'}"
            )
        return chosen, kafka[chosen]
    if not kafka:
        raise OffsetError(_what_else(lines))
    if len(kafka) > 1:
        raise OptionError(f"The query has {len(kafka)} Kafka sources. Migrate one at a time, each into a separate group:{listed}")
    return next(iter(kafka.items()))


def _what_else(lines: Mapping[str, str]) -> str:
    if ours := list(offsets_by_stream(lines.values()).values()):
        return (
            f"This is the checkpoint of a groupkafka query in the consumer group {ours[0]['group']!r}, so there is nothing to "
            "migrate. To continue, start a groupkafka query from this checkpoint, with kafka.group.id set to that group."
        )
    if all(line == NO_OFFSET for line in lines.values()):
        return (
            "The checkpoint's last micro-batch has no offset from any source, so there is nothing to migrate. Start the "
            "groupkafka query with the old query's startingOffsets."
        )
    return (
        "The checkpoint has no offsets from Spark's Kafka source, because its query reads from another source. Nothing was "
        "changed. Check the path (--checkpoint)."
    )
