"""What a release uploads beside the packages: the changelog's section, and checksums."""

from __future__ import annotations

import hashlib
from pathlib import Path

from spark_groupsource.version import __version__
from tools.release import SUMS, checksums, section


def test_this_version_has_notes() -> None:
    page = (Path(__file__).parents[2] / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "### Added" in section(page, __version__)[1]


def test_checksums_are_of_all_files_but_their_own(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"b")
    (tmp_path / "a").write_bytes(b"a")
    (tmp_path / SUMS).write_bytes(b"old")
    assert checksums(tmp_path) == "".join(f"{hashlib.sha256(name).hexdigest()}  {name.decode()}\n" for name in (b"a", b"b"))
