"""Finds out from a checkpoint's files whether a plan is in Spark's commit log (the reader's `checkpointLocation` option)."""

from __future__ import annotations

from collections.abc import Container
from contextlib import suppress
from functools import cached_property
from typing import NamedTuple

from spark_groupsource.checkpoint.files import CheckpointFiles, without_password
from spark_groupsource.checkpoint.offset_log import plans, source_lines
from spark_groupsource.errors import CheckpointOfAnotherStream, GroupKafkaError, OffsetError


class _Doubt(NamedTuple):
    """An offset log file that seems to be wrong, but may just be half-written.

    A file system without atomic writes may show another source's line before this stream's line, or only part of the version.
    """

    batch: int
    text: str
    error: GroupKafkaError


class DurablePlans:
    """Finds out which of a stream's plans are in its checkpoint's logs. Only one thread may use it."""

    def __init__(self, location: str) -> None:
        """Prepare the lookup without reading a file.

        Args:
            location: the query's `checkpointLocation`.
        """
        self._location = location
        self._located: tuple[str, int, int] | None = None
        """The last plan that was found: its stream, its number, and its micro-batch."""
        self._doubt: _Doubt | None = None

    @property
    def in_doubt(self) -> bool:
        """Whether the last read found a file that seems to be wrong. If the file is unchanged, the next read raises the error."""
        return self._doubt is not None

    def locate(self, stream: str, plan: int) -> int | None:
        """Return the number of the micro-batch with this plan, or `None` if the offset log does not have the plan yet.

        Raises:
            CheckpointOfAnotherStream: the newest micro-batch belongs to another stream, as it did in the previous call.
            CheckpointUnreadable: the files cannot be read.
            OffsetError: a newer version of Spark has written the files, as the previous call also found.
        """
        if self._located is not None and self._located[:2] == (stream, plan):
            return self._located[2]
        batch = self._next_batch(stream, plan)
        if batch is None:
            logged = self._files.batches("offsets")
            if not logged:
                return None
            self._raise_confirmed_doubt(logged)
            batch = max(logged)
            if self._plans(batch, stream).get(stream) != plan:
                return None
        self._located = (stream, plan, batch)
        return batch

    def is_durable(self, stream: str, plan: int) -> bool:
        """Return whether Spark has finished the plan, according to its commit log.

        Raises:
            CheckpointOfAnotherStream, CheckpointUnreadable, OffsetError: see `locate`.
        """
        batch = self.locate(stream, plan)
        return batch is not None and self._files.exists(f"commits/{batch}")

    def _next_batch(self, stream: str, plan: int) -> int | None:
        """Return the number of the micro-batch after the last one found, if it has the plan. Read only one file."""
        if self._located is None:
            return None
        batch = self._located[2] + 1
        with suppress(OffsetError):  # the file does not exist, or `locate` decides about the error
            if plans(source_lines(self._files.read(f"offsets/{batch}")).values()).get(stream) == plan:
                return batch
        return None

    def _plans(self, batch: int, stream: str) -> dict[str, int]:
        """Return each stream's plan in an offset log file, or nothing if the file seems to be wrong for the first time."""
        text = self._files.read(f"offsets/{batch}")
        if not text.strip():
            return {}  # the file is being written
        try:
            found = plans(source_lines(text).values())
            if found and stream not in found:
                raise CheckpointOfAnotherStream(
                    f"The reader's checkpointLocation, {without_password(self._location)!r}, is the checkpoint of stream "
                    f"{', '.join(sorted(found))}, but this query is stream {stream}. Nothing is lost or duplicated, because the "
                    "query fails before it can confirm claims from another checkpoint. Set the reader's checkpointLocation to "
                    "the same value as the writer's (writeStream), or remove the option from the reader."
                )
        except (CheckpointOfAnotherStream, OffsetError) as error:
            self._doubt = _Doubt(batch, text, error)
            return {}
        return found

    def _raise_confirmed_doubt(self, logged: Container[int]) -> None:
        """Raise the error that the last read found in a file, if the file has not changed since."""
        doubt, self._doubt = self._doubt, None
        if doubt is not None and doubt.batch in logged and self._files.read(f"offsets/{doubt.batch}") == doubt.text:
            raise doubt.error

    @cached_property
    def _files(self) -> CheckpointFiles:
        """Gives access to the checkpoint's files. If the setup fails, the next use tries again."""
        return CheckpointFiles(self._location)
