"""The files of a query's checkpoint, on any file system that PyArrow reads."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

import pyarrow as pa
from pyarrow import fs

from spark_groupsource.cli.spark_checkpoint import LastBatches, last_batches, source_lines
from spark_groupsource.errors import OptionError


class Checkpoint:
    """The files of a checkpoint: on a local path, or at a URI that PyArrow reads (`s3`, `gs`, `hdfs`, `abfss`)."""

    def __init__(self, location: str) -> None:
        """Find the file system. No file is read yet.

        Args:
            location: the query's `checkpointLocation`.

        Raises:
            OptionError: The location cannot be read.
        """
        self.location = location
        with self._reading():
            if re.match(r"[a-zA-Z][a-zA-Z0-9+.-]+:/", location):
                # s3n and s3a are Hadoop's names for S3.
                self._files, path = fs.FileSystem.from_uri(re.sub(r"^s3[an]:", "s3:", location))
            else:
                self._files, path = fs.LocalFileSystem(), os.path.abspath(location)
        self._path = path.rstrip("/")

    def query_id(self) -> str | None:
        """Return Spark's id of the query; `None` if its file is missing or has other content."""
        try:
            found = json.loads(self._read("metadata"))
        except (OptionError, ValueError, RecursionError):
            return None
        known = found.get("id") if isinstance(found, dict) else None
        return known if isinstance(known, str) and re.fullmatch(r"[0-9a-fA-F-]{36}", known) else None

    def last_batches(self) -> tuple[LastBatches, datetime | None]:
        """Return the last micro-batches, and the time of the last commit.

        Raises:
            OptionError: The files cannot be listed, or it is not a checkpoint.
            OffsetError: As `spark_checkpoint.last_batches` does.
        """
        offsets, commits = self._batches("offsets"), self._batches("commits")
        if not offsets and not commits:
            raise OptionError(
                f"--checkpoint {without_password(self.location)}: this is not the checkpoint of a streaming query. A "
                "checkpoint has the folders offsets and commits, with a file for each micro-batch. Use the path of the query's "
                "checkpointLocation."
            )
        last = last_batches(offsets, commits)
        return last, commits[last.committed].mtime

    def offsets(self, batch: int) -> dict[str, str]:
        """Return the offset of each source at the end of this micro-batch, by the source's id.

        Raises:
            OptionError: The file cannot be read.
            OffsetError: As `spark_checkpoint.source_lines` does.
        """
        return source_lines(self._read(f"offsets/{batch}"))

    def has_state(self) -> bool:
        """Return whether the query keeps state: it aggregates, joins or deduplicates."""
        with self._reading():
            return bool(self._files.get_file_info(fs.FileSelector(f"{self._path}/state", allow_not_found=True)))

    def _batches(self, log: str) -> dict[int, fs.FileInfo]:
        with self._reading():
            found = self._files.get_file_info(fs.FileSelector(f"{self._path}/{log}", allow_not_found=True))
        # The folder also has checksums (.17.crc), and files that were not complete when a driver died.
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
    """Return the text without the user and the password that a URI may have before its host.

    Keys of S3 may contain slashes. A port and a path are not masked, as in `hdfs://host:8020/a@b`.
    """
    return re.sub(r"://[^/@:\s]*:(?![0-9]+/)\S*@", "://***@", text)
