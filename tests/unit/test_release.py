"""What must not be published before the name of the package is owned."""

from __future__ import annotations

import re
from pathlib import Path

from spark_groupsource.install import with_extra

ROOT = Path(__file__).parents[2]


def test_no_text_has_pip_ask_an_index_for_this_package_before_an_index_has_it() -> None:
    """Somebody else could register the name."""
    folders = ("spark_groupsource", "devtools", "docs", "notebooks", "conf", "tools")
    texts = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".md", ".ipynb", ".txt")]
    asks = re.compile(r"pip3? install [^\n]*\bspark[-_]groupsource\b(?!-\*|\S*\.whl)")
    naming = [path.name for path in [ROOT / "README.md", *texts] if asks.search(path.read_text(encoding="utf-8"))]
    assert naming == []
    assert not asks.search(with_extra("cli"))
