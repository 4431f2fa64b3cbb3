"""What a release uploads beside the packages: the changelog's section, and checksums."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from spark_groupsource.install import with_extra
from spark_groupsource.version import __version__
from tools.release import SUMS, checksums, section

ROOT = Path(__file__).parents[2]


def test_this_version_has_notes() -> None:
    page = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "### Added" in section(page, __version__)[1]


def test_no_text_has_pip_ask_an_index_for_this_package_before_an_index_has_it() -> None:
    """Somebody else could register the name."""
    folders = ("spark_groupsource", "devtools", "docs", "notebooks", "conf", "tools")
    texts = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".md", ".ipynb", ".txt")]
    asks = re.compile(r"pip3? install [^\n]*\bspark[-_]groupsource\b(?!-\*|\S*\.whl)")
    naming = [path.name for path in [ROOT / "README.md", *texts] if asks.search(path.read_text(encoding="utf-8"))]
    assert naming == []
    assert not asks.search(with_extra("cli"))


def test_checksums_are_of_all_files_but_their_own(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"b")
    (tmp_path / "a").write_bytes(b"a")
    (tmp_path / SUMS).write_bytes(b"old")
    assert checksums(tmp_path) == "".join(f"{hashlib.sha256(name).hexdigest()}  {name.decode()}\n" for name in (b"a", b"b"))
