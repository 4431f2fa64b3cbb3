"""A folder on this host that only this user can access, for the small files that one driver's processes exchange."""

from __future__ import annotations

import os
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from spark_groupsource.errors import ReportsUnavailable

FILES_KEPT_S = 24 * 3600.0
"""How long a file is kept after it was last replaced, in seconds. A killed driver leaves its files behind. All other files are
read within seconds, or within hours during a graceful stop whose `timeout_s` is that long."""


class PrivateFolder:
    """A folder on this host that only this user can access, with small files that are always replaced as a whole."""

    def __init__(self, folder: Path | None = None) -> None:
        """Store the folder's path. The folder is created when the first file is written.

        Args:
            folder: the folder, or `None` for this user's folder in the system's folder for temporary files.
        """
        self._folder = folder
        self._has_removed_old = False

    @property
    def folder(self) -> Path:
        """The folder that contains the files.

        Raises:
            ReportsUnavailable: there is no folder for temporary files.
        """
        if self._folder is None:
            user = os.getuid() if hasattr(os, "getuid") else "user"
            try:
                self._folder = Path(tempfile.gettempdir()) / f"spark-groupsource-{user}"
            except OSError as error:
                raise ReportsUnavailable(f"there is no folder for temporary files: {error.strerror}") from None
        return self._folder

    def replace(self, name: str, content: str) -> None:
        """Write a file, or replace it as a whole.

        Raises:
            ReportsUnavailable: the folder is another user's, or cannot be written to.
        """
        try:
            with suppress(FileExistsError):
                self.folder.mkdir(mode=0o700)
            self._check_folder()
            self._remove_old()
            handle, partial = tempfile.mkstemp(prefix=".", dir=self.folder)
            try:
                with open(handle, "w", encoding="ascii") as file:
                    file.write(content)
                os.replace(partial, self.folder / name)
            except OSError:
                os.unlink(partial)
                raise
        except OSError as error:
            raise ReportsUnavailable(f"{self.folder} cannot be written to: {error.strerror}") from None

    def content(self, name: str, most: int) -> bytes | None:
        """Return at most the first `most` bytes of a file, or `None` if the file does not exist.

        Raises:
            ReportsUnavailable: the folder is another user's, or cannot be read.
        """
        try:
            self._check_folder()
            with (self.folder / name).open("rb") as file:
                return file.read(most)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ReportsUnavailable(f"{self.folder} cannot be read: {error.strerror}") from None

    def _check_folder(self) -> None:
        """Refuse a folder that another user could write to. On a shared host, any user could create the folder first."""
        found = self.folder.lstat()
        mine = not hasattr(os, "getuid") or (found.st_uid == os.getuid() and not found.st_mode & 0o077)
        if not stat.S_ISDIR(found.st_mode) or not mine:
            raise ReportsUnavailable(
                f"{self.folder} is not a folder that only this user can access. Remove it, or set TMPDIR to another folder for "
                "the driver and its program"
            )

    def _remove_old(self) -> None:
        """Remove files that have not been replaced for a long time, when this object writes its first file."""
        if self._has_removed_old:
            return
        self._has_removed_old = True
        for path in self.folder.iterdir():
            with suppress(OSError):
                if time.time() - path.lstat().st_mtime > FILES_KEPT_S:
                    path.unlink()
