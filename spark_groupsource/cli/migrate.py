"""`groupkafka migrate`: the offsets of a checkpoint of Spark's own Kafka source become the committed offsets of a group.

The group then stands where the old query stood, and a groupkafka query with a checkpoint of its own goes on there. The checkpoint
is only read: as long as the new query has not started, the old one can go on instead.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]
from pyarrow import fs

from spark_groupsource.brokers.group_admin import GroupAdmin
from spark_groupsource.brokers.group_view import PartitionView, refuse_active
from spark_groupsource.cli.offset_reset import OffsetReset
from spark_groupsource.cli.spark_checkpoint import LastBatches, batch_to_carry, choose_source, last_batches, source_lines
from spark_groupsource.errors import GroupNotFound, OffsetError, OffsetsInTheWay, OptionError, TopicNotFound
from spark_groupsource.partition import OffsetRange, TopicPartition


class Checkpoint:
    """The files of a checkpoint: on a local path, or at a URI that PyArrow reads (`s3`, `gs`, `hdfs`, `abfss`)."""

    def __init__(self, location: str) -> None:
        """
        Raises:
            OptionError: not a place that can be read.
        """
        self.location = location
        with self._reading():
            if re.match(r"[a-zA-Z][a-zA-Z0-9+.-]+:/", location):
                # Hadoop's names for S3.
                self._files, path = fs.FileSystem.from_uri(re.sub(r"^s3[an]:", "s3:", location))
            else:
                self._files, path = fs.LocalFileSystem(), os.path.abspath(location)
        self._path = path.rstrip("/")

    def query_id(self) -> str | None:
        """Spark's id of the query; `None` when the file with it is not there, or holds something else."""
        try:
            found = json.loads(self._read("metadata"))
        except (OptionError, ValueError, RecursionError):
            return None
        known = found.get("id") if isinstance(found, dict) else None
        return known if isinstance(known, str) and re.fullmatch(r"[0-9a-fA-F-]{36}", known) else None

    def last_batches(self) -> tuple[LastBatches, datetime | None]:
        """The last micro-batches, and when the committed one was.

        Raises:
            OptionError: the files cannot be listed.
            OffsetError: see spark_checkpoint.
        """
        offsets, commits = self._batches("offsets"), self._batches("commits")
        if not offsets and not commits:
            raise OptionError(
                f"--checkpoint {without_password(self.location)}: that is no checkpoint of a streaming query, which has the "
                "folders offsets and commits, with a file for each micro-batch. It is where the query's checkpointLocation says."
            )
        last = last_batches(offsets, commits)
        return last, commits[last.committed].mtime

    def offsets(self, batch: int) -> dict[str, str]:
        """The offset of each source at the end of this micro-batch.

        Raises:
            OptionError: the file cannot be read.
            OffsetError: see spark_checkpoint.
        """
        return source_lines(self._read(f"offsets/{batch}"))

    def has_state(self) -> bool:
        """Whether the query aggregates, joins or deduplicates."""
        with self._reading():
            return bool(self._files.get_file_info(fs.FileSelector(f"{self._path}/state", allow_not_found=True)))

    def _batches(self, log: str) -> dict[int, fs.FileInfo]:
        with self._reading():
            found = self._files.get_file_info(fs.FileSelector(f"{self._path}/{log}", allow_not_found=True))
        # Beside them stand checksums (.17.crc) and what was being written when a driver died.
        return {int(one.base_name): one for one in found if re.fullmatch(r"[0-9]{1,19}", one.base_name)}

    def _read(self, name: str) -> str:
        with self._reading(), self._files.open_input_stream(f"{self._path}/{name}") as stream:
            return bytes(stream.read()).decode("utf-8")

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
            raise OptionError(without_password(f"--checkpoint {self.location} cannot be read: {error}")) from None


def without_password(text: str) -> str:
    """The text without the user and the password that a URI may have before its host; keys of S3 have slashes in them.

    A port and a path, as of `hdfs://host:8020/a@b`, are none.
    """
    return re.sub(r"://[^/@:\s]*:(?![0-9]+/)\S*@", "://***@", text)


@dataclass(frozen=True)
class Migration:
    """What would be committed, and what to know of it."""

    group: str
    checkpoint: str
    query: str | None
    last: LastBatches
    batch: int
    """The micro-batch at whose end the group is to stand."""
    committed_at: datetime | None
    source: str
    resets: tuple[OffsetReset, ...]
    """Every partition: those of the checkpoint, and those of its topics that were added after it."""
    added: frozenset[TopicPartition]
    """Not in the checkpoint: they start at their log's start, as Spark's source would have them."""
    expired: Mapping[TopicPartition, OffsetRange]
    """Records between the checkpoint's offset and the log's start, which nobody can read any more."""
    gone: tuple[TopicPartition, ...]
    """In the checkpoint, of topics that are no longer in Kafka."""
    stateful: bool
    """Whether the old query keeps state, which no group can hold."""


def plan_migration(
    describer: GroupAdmin, group: str, checkpoint: Checkpoint, *, source: str | None, uncommitted: str | None
) -> Migration:
    """What would be committed; nothing is written.

    Args:
        source: the id of the Kafka source, when the query has several.
        uncommitted: see spark_checkpoint.batch_to_carry.

    Raises:
        OptionError, OffsetError, UncommittedBatch: see spark_checkpoint; OffsetError also when an offset is beyond the end of
            its log, or a topic has fewer partitions: it is another cluster's, or was made anew.
        GroupActive: the group has members.
        BrokerError: see GroupAdmin.
    """
    last, committed_at = checkpoint.last_batches()
    batch = batch_to_carry(last, uncommitted)
    name, offsets = choose_source(checkpoint.offsets(batch), source)
    known = _partitions_of(describer, group)
    there = _existing(describer, {partition.topic for partition in offsets})
    starts = describer.offsets_at(there, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
    ends = describer.offsets_at(there, OffsetSpec.latest())  # type: ignore[no-untyped-call]
    carried = {partition: offsets.get(partition, starts[partition]) for partition in there}
    gone = tuple(sorted(offsets.keys() - there))
    _refuse_other_logs(carried, ends, gone)
    resets = []
    for partition, new in sorted(carried.items()):
        one = known.get(partition)
        claims = () if one is None else one.in_flight + one.owed
        resets.append(OffsetReset(partition, None if one is None else one.committed, new, claims))
    return Migration(
        group=group,
        checkpoint=without_password(checkpoint.location),
        query=checkpoint.query_id(),
        last=last,
        batch=batch,
        committed_at=committed_at,
        source=name,
        resets=tuple(resets),
        added=frozenset(there - offsets.keys()),
        expired={one: OffsetRange(new, starts[one]) for one, new in sorted(carried.items()) if new < starts[one]},
        gone=gone,
        stateful=checkpoint.has_state(),
    )


def _partitions_of(describer: GroupAdmin, group: str) -> dict[TopicPartition, PartitionView]:
    try:
        view = describer.describe(group)
    except GroupNotFound:
        return {}  # the usual case: the commit makes the group
    refuse_active(view)
    return {one.partition: one for one in view.partitions}


def _existing(describer: GroupAdmin, topics: set[str]) -> set[TopicPartition]:
    there: set[TopicPartition] = set()
    for topic in sorted(topics):
        try:
            there |= set(describer.partitions_of(topic))
        except TopicNotFound:
            continue
    if not there:
        raise OffsetError(
            f"None of the checkpoint's topics exists on these brokers: {', '.join(sorted(topics))}. Is --bootstrap-server the "
            "cluster that the old query reads from?"
        )
    return there


def _refuse_other_logs(
    carried: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], gone: Collection[TopicPartition]
) -> None:
    """Refuse logs that cannot be those the offsets are of; a topic's offsets and partitions only grow."""
    topics = {one.topic for one in carried}
    ahead = [f"\n  {one}: offset {new}, the log ends at {ends[one]}" for one, new in sorted(carried.items()) if new > ends[one]]
    ahead += [f"\n  {one}: the topic has no such partition" for one in gone if one.topic in topics]
    if ahead:
        raise OffsetError(
            f"The checkpoint is ahead of the logs:{''.join(ahead)}\n"
            "Either --bootstrap-server is not the cluster that the old query reads from, or a topic was deleted and created "
            "again, or its log was cut. Start the old query: it says what is lost, and goes on with failOnDataLoss=false."
        )


def refuse_to_replace(migration: Migration, *, overwrite: bool) -> None:
    """Refuse what would make the group forget something.

    Args:
        overwrite: the group may have committed other offsets, but not claims.

    Raises:
        OffsetsInTheWay: it has.
    """
    group = migration.group
    if claimed := [str(reset.partition) for reset in migration.resets if reset.claims]:
        raise OffsetsInTheWay(
            f"Queries of the group {group} have claimed ranges of {', '.join(claimed)} and not confirmed them (`groupkafka "
            "claims` lists them). Migrate into another group, which the new query then joins; or restart those queries until "
            "nothing is claimed. Nothing was changed."
        )
    other = [reset for reset in migration.resets if reset.current is not None and reset.current != reset.new]
    if other and not overwrite:
        listed = "".join(f"\n  {reset.partition}: {reset.current}, to be {reset.new}" for reset in other)
        raise OffsetsInTheWay(
            f"The group {group} has committed other offsets:{listed}\nIs it the right group? If so, --overwrite replaces them. "
            "Nothing was changed."
        )


def execute_migration(describer: GroupAdmin, checkpoint: Checkpoint, migration: Migration) -> None:
    """Commit the offsets in the group.

    Raises:
        OffsetError: the checkpoint has changed since it was read: its query is running.
        GroupActive: a member has joined meanwhile.
        BrokerError: see GroupAdmin.
    """
    if checkpoint.last_batches()[0] != migration.last:
        raise OffsetError("The checkpoint has changed since it was read: its query is running. Stop it, then migrate.")
    _partitions_of(describer, migration.group)
    changed = {reset.partition: reset.new for reset in migration.resets if reset.new != reset.current}
    if changed:
        describer.alter_offsets(migration.group, changed)
