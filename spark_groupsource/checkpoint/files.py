"""Reads a query's checkpoint files on any file system that PyArrow supports."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyarrow import fs

from spark_groupsource.errors import CheckpointUnreadable
from spark_groupsource.sink.names import is_query


class CheckpointFiles:
    """Gives access to a checkpoint's files at a local path or a PyArrow URI (`file`, `s3`, `gs`, `hdfs`, `abfss`)."""

    def __init__(self, location: str) -> None:
        """Find the file system without reading a file.

        Args:
            location: the query's `checkpointLocation`. Without a scheme, it is a local path.

        Raises:
            CheckpointUnreadable: the location cannot be read. All methods raise this. The message contains no password.
        """
        self.location = location
        with self._reading():
            if re.match(r"[a-zA-Z][a-zA-Z0-9+.-]+:/", location):
                if location.lower().startswith(("hdfs:", "viewfs:")):
                    _keep_signals_from_libhdfs()
                # s3n and s3a are Hadoop's names for S3. Hadoop also writes a local path as file:/path.
                uri = re.sub(r"^s3[an]:", "s3:", re.sub(r"^file:/(?!/)", "file:///", location))
                self._files, path = fs.FileSystem.from_uri(uri)
            else:
                self._files, path = fs.LocalFileSystem(), os.path.abspath(location)
        self._path = path.rstrip("/")

    def batches(self, log: str) -> dict[int, fs.FileInfo]:
        """Return the files in a log (`offsets` or `commits`) by micro-batch number. There may be none."""
        with self._reading():
            found = self._files.get_file_info(fs.FileSelector(f"{self._path}/{log}", allow_not_found=True))
        # Skip checksums (.17.crc), and files that were incomplete when a driver crashed.
        return {int(file.base_name): file for file in found if re.fullmatch(r"[0-9]{1,19}", file.base_name)}

    def read(self, name: str) -> str:
        """Return a file's text."""
        with self._reading(), self._files.open_input_stream(f"{self._path}/{name}") as stream:
            return bytes(stream.read()).decode("utf-8")

    def query_id(self) -> str | None:
        """Return Spark's id for the query, or `None` if the file is missing, cannot be read, or has other content."""
        try:
            found = json.loads(self.read("metadata"))
        except (CheckpointUnreadable, ValueError, RecursionError):
            return None
        query = found.get("id") if isinstance(found, dict) else None
        return query if isinstance(query, str) and is_query(query) else None

    def exists(self, name: str) -> bool:
        """Return whether a file exists and has content. An empty file is still being written, or its writer crashed."""
        with self._reading():
            return bool(self._files.get_file_info(f"{self._path}/{name}").size)

    def is_empty(self, folder: str) -> bool:
        """Return whether a folder has no files, or does not exist."""
        with self._reading():
            return not self._files.get_file_info(fs.FileSelector(f"{self._path}/{folder}", allow_not_found=True))

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Convert file system errors to `CheckpointUnreadable`."""
        try:
            yield
        except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
            raise CheckpointUnreadable(without_password(f"{self.location} cannot be read: {error}")) from None


def _keep_signals_from_libhdfs() -> None:
    """Keep the JVM that libhdfs starts in this process from handling signals.

    The JVM would otherwise replace the SIGTERM handler that a stopped query uses to leave its group.
    """
    options = os.environ.get("LIBHDFS_OPTS", "")
    if "-Xrs" not in options.split():
        os.environ["LIBHDFS_OPTS"] = f"{options} -Xrs".strip()


_S3_KEY = re.compile(r"(?is)\b(s3[an]?:/+)[^/@:\s]*(?::|%3a).*(?:@|%40)")
"""Matches the keys before a bucket. A secret key may contain any character, and a bucket has no port."""

_PASSWORD = re.compile(r"(?i)(:/+)[^/:\s]*?(?::|%3a)(?:\S*(?:@|%40)|(?![0-9]+(?:[/\s]|$)).*(?:@|%40))")
"""Matches a user and a password before a host. A password may contain slashes, and spaces if it does not look like a port."""

_QUERY = re.compile(r"(:/[^?\n]*\?)\S+")


def without_password(text: str) -> str:
    """Mask the user and password before a URI's host, and the URI's query.

    Passwords may contain slashes, so a port is masked as well if a path with an @ follows, as in `hdfs://host:8020/a@b`. The
    query may be a token. A user without a password is shown.
    """
    return _QUERY.sub(r"\1***", _PASSWORD.sub(r"\1***@", _S3_KEY.sub(r"\1***@", text)))
