"""What the checkpoint of a query over Spark's own Kafka source says: which micro-batches, and where each partition stands. Pure.

`offsets/N` is written before micro-batch N is read, `commits/N` once its sink has it. The first line of an offset log's file is
its format, the second holds Spark's own settings, and each line after it is one source: in `v1` in the order of the query, in
`v2` (`spark.sql.streaming.offsetLog.formatVersion`) with the source's id and a colon before it; `-` where a source has no offset
yet. Kafka's is `{topic:{partition:offset}}`, with the first offset that is not part of the micro-batch (Spark's OffsetSeqLog and
KafkaSourceOffset).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from pydantic import ValidationError

from spark_groupsource.errors import OffsetError, OptionError, UncommittedBatch
from spark_groupsource.handoff.plan_offset import PlanOffset
from spark_groupsource.options.values import TOPIC_NAME, offsets_value
from spark_groupsource.partition import TopicPartition

NO_OFFSET = "-"

REREAD = "reread"
SKIP = "skip"


class LastBatches(NamedTuple):
    """The newest micro-batch in the commit log, and in the offset log."""

    committed: int
    planned: int


def last_batches(offsets: Collection[int], commits: Collection[int]) -> LastBatches:
    """The last micro-batches of a checkpoint, from the numbers of its files.

    Raises:
        OffsetError: no micro-batch was committed, or a file is missing.
    """
    if not commits:
        raise OffsetError(
            "The checkpoint has no micro-batch that was committed: there is nothing to carry over. Start the old query until it "
            "has one; or, if it has written nothing, start the groupkafka query with the startingOffsets that the old one had."
        )
    committed = max(commits)
    if committed not in offsets:
        raise OffsetError(f"The checkpoint is not whole: there is a file commits/{committed}, and no offsets/{committed}.")
    return LastBatches(committed, max(offsets))


def batch_to_carry(last: LastBatches, uncommitted: str | None) -> int:
    """The micro-batch whose end is carried over.

    Args:
        uncommitted: `reread`, `skip`, or `None` when nothing was said about a micro-batch that was not committed.

    Raises:
        UncommittedBatch: there is one, and nothing was said.
    """
    if last.planned == last.committed or uncommitted == REREAD:
        return last.committed
    if uncommitted == SKIP:
        return last.planned
    first = last.committed + 1
    which = f"Micro-batch {last.planned} was" if first == last.planned else f"Micro-batches {first} to {last.planned} were"
    raise UncommittedBatch(
        f"{which} planned and not committed: the query was stopped in the middle, and its output has these records, or a part of "
        "them, or none.\n"
        "  1. Start the old query once more on this checkpoint, until it has finished them (with trigger(availableNow=True) it "
        "ends by itself), and migrate then: no record is lost or doubled.\n"
        f"  2. Or look what the output has. None of them: --uncommitted {REREAD} has the groupkafka query read them. All of them "
        f"(Spark's file sink then has a file _spark_metadata/{last.planned}, or {last.planned}.compact there): --uncommitted "
        f"{SKIP} goes on behind them. A part: "
        f"{REREAD} doubles it, {SKIP} loses the rest."
    )


def source_lines(text: str) -> dict[str, str]:
    """The offset of each source in a file of the offset log, by the source's id (in `v1`: its number, from 0).

    Raises:
        OffsetError: not a format that is known.
    """
    version, _, rest = text.partition("\n")
    _, _, sources = rest.partition("\n")
    lines = [line.strip() for line in sources.split("\n") if line.strip()]
    if version.strip() == "v1":
        return {str(number): line for number, line in enumerate(lines)}
    if version.strip() == "v2" and all(named := [re.fullmatch(r"([\w.-]+):(.+)", line) for line in lines]):
        return {match[1]: match[2] for match in named if match is not None}
    raise OffsetError(
        f"The file of the offset log begins with {version[:20]!r}; v1 and v2 are known. Perhaps a newer Spark wrote it, which "
        "this version of spark_groupsource does not know."
    )


def kafka_offsets(text: str) -> dict[TopicPartition, int] | None:
    """The end of each partition, exclusive, if this is an offset of Spark's Kafka source; else `None`."""
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
    """The Kafka source to migrate, and its offsets.

    Args:
        lines: see source_lines.
        chosen: its id; `None` for the only one.

    Raises:
        OptionError: there are several and none was chosen, or the one that was chosen is none of Kafka's.
        OffsetError: there is none.
    """
    kafka = {source: offsets for source, line in lines.items() if (offsets := kafka_offsets(line)) is not None}
    listed = "".join(f"\n  --source {source}  {', '.join(_topics(offsets))}" for source, offsets in kafka.items())
    if chosen is not None:
        if chosen not in kafka:
            raise OptionError(f"--source {chosen}: that is no Kafka source with offsets. There are:{listed or ' none'}")
        return chosen, kafka[chosen]
    if not kafka:
        raise OffsetError(_what_else(lines))
    if len(kafka) > 1:
        raise OptionError(
            f"The query has {len(kafka)} Kafka sources. Migrate one at a time, each into a group of its own:{listed}"
        )
    return next(iter(kafka.items()))


def _topics(offsets: Mapping[TopicPartition, int]) -> list[str]:
    return sorted({partition.topic for partition in offsets})


def _what_else(lines: Mapping[str, str]) -> str:
    for line in lines.values():
        if (group := _group_of_ours(line)) is not None:
            return (
                f"The checkpoint is of a groupkafka query, in the consumer group {group!r}: there is nothing to migrate. A query "
                "that is started on it with kafka.group.id set to that group goes on where it stands."
            )
    if all(line == NO_OFFSET for line in lines.values()):
        return "The checkpoint's last micro-batch has no offset of any source: there is nothing to carry over."
    return "The checkpoint has no offsets of Spark's Kafka source: its query reads from something else."


def _group_of_ours(line: str) -> str | None:
    try:
        return PlanOffset.model_validate_json(line).group
    except ValidationError:
        return None
