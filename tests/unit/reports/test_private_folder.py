"""A folder that only this user may enter, with small files that are replaced whole."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest

from spark_groupsource.errors import ReportsUnavailable
from spark_groupsource.reports.private_folder import FILES_KEPT_S, PrivateFolder


@pytest.fixture
def private(tmp_path: Path) -> PrivateFolder:
    return PrivateFolder(tmp_path / "reports")


def test_only_this_user_may_enter_it_and_a_file_is_replaced(private: PrivateFolder) -> None:
    assert private.content("name", 10) is None
    for text in ("first", "second"):
        private.replace("name", text)
    assert private.folder.stat().st_mode & 0o777 == 0o700
    (file,) = private.folder.iterdir()
    assert file.stat().st_mode & 0o077 == 0
    assert private.content("name", 10) == b"second"
    assert private.content("name", 3) == b"sec"


@pytest.mark.parametrize("mode", [0o755, 0o701, 0o770])
def test_a_folder_that_others_may_enter_is_refused(private: PrivateFolder, mode: int) -> None:
    private.folder.mkdir()
    private.folder.chmod(mode)
    with pytest.raises(ReportsUnavailable, match="is not a folder that only this user can access"):
        private.replace("name", "text")
    with pytest.raises(ReportsUnavailable, match="is not a folder that only this user can access"):
        private.content("name", 10)


def test_a_link_in_its_place_is_refused(private: PrivateFolder, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    private.folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ReportsUnavailable):
        private.replace("name", "text")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_old_files_are_removed_with_the_first_that_a_process_writes(private: PrivateFolder) -> None:
    private.replace("old", "text")
    private.replace("new", "text")
    long_ago = time.time() - FILES_KEPT_S - 60
    os.utime(private.folder / "old", (long_ago, long_ago))
    private.replace("new", "text")
    assert private.content("old", 10) is not None, "a later one looks at nothing else"
    PrivateFolder(private.folder).replace("another", "text")
    assert private.content("old", 10) is None
    assert private.content("new", 10) is not None


def test_what_cannot_be_written_leaves_no_file(private: PrivateFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(ReportsUnavailable, match="No space left"):
        private.replace("name", "text")
    assert list(private.folder.iterdir()) == []


def test_a_host_without_a_folder_for_temporary_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    with pytest.raises(ReportsUnavailable, match="no folder for temporary files"):
        PrivateFolder().content("name", 10)
    with pytest.raises(ReportsUnavailable, match="no folder for temporary files"):
        PrivateFolder().replace("name", "text")
