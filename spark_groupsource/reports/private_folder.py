"""A folder on this host that only this user may enter: what processes of one driver leave for each other is in it."""

from __future__ import annotations

import os
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from spark_groupsource.errors import ReportsUnavailable

DRIVER_REPORTS_KEPT_S = 7 * 24 * 3600.0
"""How long a file of reports stays that nobody has replaced. A stream that reports again makes a new one."""


class PrivateFolder:
    """A folder on this host that only this user may enter, with small files that are replaced whole."""

    def __init__(self, folder: Path | None = None) -> None:
        """Name the folder. It is made when something is written.

        Args:
            folder: where the files are. `None`: a folder of this user below the system's folder for temporary files.
        """
        self._folder = folder
        self._has_removed_old = False

    @property
    def folder(self) -> Path:
        """Where the files are.

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
        """Write a file, as a whole.

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
        """Return the first bytes of a file, `most` at most; `None` if there is no file.

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
        """Refuse a folder that somebody else could write to: on a shared host anybody can make one of this name first."""
        found = self.folder.lstat()
        mine = not hasattr(os, "getuid") or (found.st_uid == os.getuid() and not found.st_mode & 0o077)
        if not stat.S_ISDIR(found.st_mode) or not mine:
            raise ReportsUnavailable(
                f"{self.folder} is not a folder that only this user may enter. Remove it, or set TMPDIR to another folder for "
                "the driver"
            )

    def _remove_old(self) -> None:
        """Remove what nobody has replaced for long: once, with the first report of this process."""
        if self._has_removed_old:
            return
        self._has_removed_old = True
        for path in self.folder.iterdir():
            with suppress(OSError):
                if time.time() - path.lstat().st_mtime > DRIVER_REPORTS_KEPT_S:
                    path.unlink()
