"""`make docs`: the site has every page, shows it as a Git host does, and is not built when a link leads nowhere."""

from __future__ import annotations

import json
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
    "LICENSE",
    "tools",
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


def test_the_search_works_from_the_disk_and_code_can_be_copied(site: Path) -> None:
    """A browser starts no worker in a page from the disk, and fetches no JSON there."""
    assert (site / "search" / "search_index.js").read_text(encoding="utf-8").startswith("var __index = {")
    page = (site / "docs" / "guide.html").read_text(encoding="utf-8")
    assert '<script src="../tools/site/iframe-worker.js">' in page
    assert "content.code.copy" in page
    assert (site / "tools" / "site" / "site.css").is_file()


@pytest.mark.parametrize("notebook", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda notebook: notebook.stem)
def test_a_notebook_is_a_page_with_its_texts_its_code_and_its_pictures(notebook: Path, site: Path) -> None:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    page = (site / "notebooks" / f"{notebook.stem}.html").read_text(encoding="utf-8")
    assert page.count("language-python") == sum(cell["cell_type"] == "code" for cell in cells)
    pictures = [output for cell in cells for output in cell.get("outputs", ()) if "image/png" in output.get("data", {})]
    assert len(list((site / "notebooks").glob(f"{notebook.stem}-*.png"))) == len(pictures)
    linking = (site / "index.html").read_text(encoding="utf-8")
    assert f'href="notebooks/{notebook.stem}.html"' in linking
    assert f'href="notebooks/{notebook.stem}.ipynb"' not in linking


BROKEN = {
    "no-such-page.md": ("docs/guide.md", "[a page](no-such-page.md)"),
    "no-such-heading": ("docs/guide.md", "[a heading of another page](handoff.md#no-such-heading)"),
    "no-such-own-heading": ("README.md", "[a heading of the same page](#no-such-own-heading)"),
    "no_such_file.py": ("docs/guide.md", "[a file](../conf/no_such_file.py)"),
}


@pytest.mark.long
def test_links_that_lead_nowhere_are_errors(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    for page, link in BROKEN.values():
        with (folder / page).open("a", encoding="utf-8") as text:
            text.write(f"\n{link}\n")
    done = build(folder)
    assert done.returncode != 0
    assert f"Aborted with {len(BROKEN)} warnings in strict mode" in done.stdout
    assert [named for named in BROKEN if named not in done.stderr] == []
