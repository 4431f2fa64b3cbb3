"""`make docs`: the site has every page, shows it as a Git host does, and is not built when a link leads nowhere."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[3]
PARTS = (
    "mkdocs.yml",
    "tools/docs_site.py",
    "docs",
    "conf",
    "notebooks",
    "benchmarks/results",
    *(page.name for page in ROOT.glob("*.md")),
)
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "conf").rglob("*.md")]


def copied(folder: Path) -> Path:
    """Copy what the site is made of."""
    for part in PARTS:
        target = folder / part
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / part).is_dir() else shutil.copy)(ROOT / part, target)
    return folder


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of the pages as they are."""
    folder = copied(tmp_path_factory.mktemp("site"))
    done = build(folder)
    assert done.returncode == 0, done.stderr
    return folder / "build" / "site"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_has_the_same_headings_lists_tables_and_code_as_on_a_git_host(page: Path, site: Path) -> None:
    expected = MarkdownIt("commonmark").enable("table").render(page.read_text(encoding="utf-8"))
    name = page.relative_to(ROOT).with_suffix(".html").as_posix().replace("README.html", "index.html")
    (article,) = re.findall(r"<article.*?</article>", (site / name).read_text(encoding="utf-8"), re.DOTALL)
    for tag in ("h1", "h2", "h3", "ul", "ol", "li", "table", "tr", "pre"):
        found, wanted = (len(re.findall(rf"<{tag}[ >]", html)) for html in (article, expected))
        assert (tag, found) == (tag, wanted)


def test_the_site_needs_nothing_from_another_server(site: Path) -> None:
    pages = [path.read_text(encoding="utf-8") for path in site.rglob("*.html")]
    assert len(pages) >= len(PAGES)
    loaded = [
        found
        for text in pages
        for found in re.findall(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=\"?(?:https?:)?//[^>]*", text)
    ]
    assert loaded == []
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert re.findall(r"(?:url\(|@import )[\"']?(?:https?:)?//", styles) == []


BROKEN = {
    "no-such-page.md": ("docs/guide.md", "[a page](no-such-page.md)"),
    "no-such-heading": ("docs/guide.md", "[a heading of another page](handoff.md#no-such-heading)"),
    "no-such-own-heading": ("README.md", "[a heading of the same page](#no-such-own-heading)"),
    "no_such_file.py": ("docs/guide.md", "[a file](../conf/no_such_file.py)"),
}


def test_links_that_lead_nowhere_are_errors(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    for page, link in BROKEN.values():
        with (folder / page).open("a", encoding="utf-8") as text:
            text.write(f"\n{link}\n")
    done = build(folder)
    assert done.returncode != 0
    assert f"Aborted with {len(BROKEN)} warnings in strict mode" in done.stdout
    assert [named for named in BROKEN if named not in done.stderr] == []
