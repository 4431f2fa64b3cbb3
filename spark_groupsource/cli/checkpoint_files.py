"""Reads the parts of a checkpoint that `groupkafka migrate` and `groupkafka clean-up` need."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from spark_groupsource.checkpoint.files import CheckpointFiles, without_password
from spark_groupsource.checkpoint.offset_log import source_lines
from spark_groupsource.cli.spark_checkpoint import LastBatches, last_batches
from spark_groupsource.errors import CheckpointUnreadable, OptionError


class Checkpoint:
    """A checkpoint at a local path or a URI that PyArrow supports (`s3`, `gs`, `hdfs`, `abfss`)."""

    def __init__(self, location: str) -> None:
        """Find the file system without reading a file.

        Args:
            location: the query's `checkpointLocation`.

        Raises:
            OptionError: The location cannot be read.
        """
        self.location = location
        with _reading():
            self.files = CheckpointFiles(location)

    def query_id(self) -> str:
        """Return Spark's id for the query.

        Raises:
            OptionError: The `metadata` file cannot be read, or has no id.
        """
        found = self.files.query_id()
        if found is None:
            raise OptionError(
                f"--checkpoint {without_password(self.location)}: there is no metadata file with a query's id. Use the query's "
                "checkpointLocation. If the checkpoint was deleted, use --query: the id is in the names of the query's groups "
                "(kafka-consumer-groups.sh --list), in Spark's log, and in the query's progress."
            )
        return found

    def last_batches(self) -> tuple[LastBatches, datetime | None]:
        """Return the last micro-batches, and the time when the last one was committed.

        Raises:
            OptionError: The files cannot be listed, or the location is not a query's checkpoint.
            OffsetError: See `spark_checkpoint.last_batches`.
        """
        with _reading():
            offsets, commits = self.files.batches("offsets"), self.files.batches("commits")
        if not offsets and not commits:
            raise OptionError(
                f"--checkpoint {without_password(self.location)}: this is not a streaming query's checkpoint, which has the "
                "offsets and commits folders with a file for each micro-batch. Use the query's checkpointLocation."
            )
        last = last_batches(offsets, commits)
        return last, commits[last.committed].mtime

    def offsets(self, batch: int) -> dict[str, str]:
        """Return each source's offset after this micro-batch, by source id.

        Raises:
            OptionError: The file cannot be read.
            OffsetError: See `offset_log.source_lines`.
        """
        with _reading():
            text = self.files.read(f"offsets/{batch}")
        return source_lines(text)

    def has_state(self) -> bool:
        """Return whether the query keeps state: it aggregates, joins or deduplicates."""
        with _reading():
            return not self.files.is_empty("state")


@contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except CheckpointUnreadable as error:
        raise OptionError(f"--checkpoint {error}") from None
