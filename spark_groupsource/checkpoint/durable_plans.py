"""Whether a plan is in Spark's commit log, as the files of the checkpoint show it (reader option `checkpointLocation`)."""

from __future__ import annotations

from spark_groupsource.checkpoint.files import CheckpointFiles, without_password
from spark_groupsource.checkpoint.offset_log import plans, source_lines
from spark_groupsource.errors import CheckpointOfAnotherStream


class DurablePlans:
    """Looks up plans of one stream. Used on one thread."""

    def __init__(self, location: str) -> None:
        """Begin; no file is read yet.

        Args:
            location: the query's `checkpointLocation`.
        """
        self._location = location
        self._files: CheckpointFiles | None = None
        self._located: tuple[str, int, int] | None = None
        """A stream, its plan, and the micro-batch of that plan."""

    def locate(self, stream: str, plan: int) -> int | None:
        """Return the micro-batch of a plan that is in the offset log; `None` if the log does not show it.

        Raises:
            CheckpointOfAnotherStream: the newest micro-batch is another stream's.
            CheckpointUnreadable: the files cannot be read.
            OffsetError: a newer version of Spark has written them.
        """
        if self._located is not None and self._located[:2] == (stream, plan):
            return self._located[2]
        files = self._open()
        batch = self._next_batch(files, stream, plan)
        if batch is None:
            logged = files.batches("offsets")
            if not logged:
                return None
            batch = max(logged)
            text = files.read(f"offsets/{batch}")
            if not text.strip():
                return None  # it is being written
            found = plans(source_lines(text).values())
            if found and stream not in found:
                raise CheckpointOfAnotherStream(
                    f"checkpointLocation = {without_password(self._location)!r}, an option of the reader, is the checkpoint of "
                    f"stream {', '.join(sorted(found))}, and this query is stream {stream}. Give the reader the same "
                    "checkpointLocation as the writer (writeStream), or remove the option from the reader."
                )
            if found.get(stream) != plan:
                return None
        self._located = (stream, plan, batch)
        return batch

    def is_durable(self, stream: str, plan: int) -> bool:
        """Return whether the plan's micro-batch is in the commit log.

        Raises:
            CheckpointOfAnotherStream, CheckpointUnreadable, OffsetError: as `locate`.
        """
        batch = self.locate(stream, plan)
        return batch is not None and self._open().exists(f"commits/{batch}")

    def _next_batch(self, files: CheckpointFiles, stream: str, plan: int) -> int | None:
        """Return the micro-batch after the last one if it has the plan: one file is read, and no folder is listed."""
        if self._located is None:
            return None
        name = f"offsets/{self._located[2] + 1}"
        if not files.exists(name) or plans(source_lines(files.read(name)).values()).get(stream) != plan:
            return None
        return self._located[2] + 1

    def _open(self) -> CheckpointFiles:
        if self._files is None:
            self._files = CheckpointFiles(self._location)
        return self._files
