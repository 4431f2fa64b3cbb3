"""An MkDocs hook that gives the site the repository's layout, so that each link works both on a Git host and on the site.

MkDocs reads only the folder docs/. This hook adds the pages of the root and of conf/, and the files that pages link to, such as
conf/orders.py, each under its path in the repository. It also turns each notebook into a page, to which the links of other pages
lead. MkDocs then checks every link.
"""

from __future__ import annotations

import re
from pathlib import Path

from markdown import Extension, Markdown
from markdown.blockprocessors import build_block_parser
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tools.notebook_pages import notebook_page

SITE = "tools/site"
"""The site's own style and script."""
LINK = re.compile(r"\]\(([^)#\s]+)")
NOTEBOOK_LINK = re.compile(r"(\]\([^)#\s]+)\.ipynb\b")
ITEM = re.compile(r"([-*]|\d+\.) ")
FENCE = "```"


class ShallowLists(Extension):  # type: ignore[misc]  # the library has no types
    """Accepts the text of a list item that is indented by two or three spaces, as Git hosts do. Python-Markdown wants four."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        """Replace the block parser by one with this indentation."""
        md.tab_length = 2
        md.parser = build_block_parser(md)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the extension before those that extend the parser, because it replaces the parser."""
    config["markdown_extensions"].insert(0, ShallowLists())
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Return the theme's own files, the pages of the repository, and the files that the pages link to."""
    root = Path(config.config_file_path).parent
    folders = [Path(config.docs_dir), root / "conf", root / "benchmarks" / "results"]
    pages = [*root.glob("*.md"), *(page for folder in folders for page in folder.rglob("*.md"))]
    found = sorted({*pages, *(file for page in pages for file in _linked_files(page, root))})
    found += sorted((root / SITE).iterdir())
    of_theme = [file for file in files if file.src_dir != config.docs_dir]
    notebooks = [file for path in found if path.suffix == ".ipynb" for file in _notebook(path, root, config)]
    return Files([*of_theme, *(_file(path.relative_to(root).as_posix(), root, config) for path in found), *notebooks])


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Return the page with an empty line before each list item that follows a block in the list, as Python-Markdown needs it.

    Links to a notebook lead to its page, except for the link on that page.
    """
    if not page.file.src_uri.startswith("notebooks/"):
        markdown = NOTEBOOK_LINK.sub(r"\1.md", markdown)
    lines: list[str] = []
    in_fence = in_block_of_item = False
    for line in markdown.splitlines():
        if line.lstrip().startswith(FENCE):
            in_fence = not in_fence
            in_block_of_item = line.startswith(" ")
        elif not in_fence and in_block_of_item and ITEM.match(line):
            lines.append("")
            in_block_of_item = False
        elif not in_fence and lines and not lines[-1].strip():
            in_block_of_item = line.startswith(" ")
        lines.append(line)
    return "\n".join(lines) + "\n"


def _linked_files(page: Path, root: Path) -> list[Path]:
    """Return the repository files that a page links to, except other pages."""
    targets = [(page.parent / link).resolve() for link in LINK.findall(page.read_text(encoding="utf-8"))]
    return [target for target in targets if target.is_file() and target.suffix != ".md" and target.is_relative_to(root)]


def _notebook(path: Path, root: Path, config: MkDocsConfig) -> list[File]:
    """Return a notebook's page and pictures."""
    page = notebook_page(path)
    folder = path.parent.relative_to(root)
    contents: dict[str, str | bytes] = {f"{path.stem}.md": page.markdown, **page.pictures}
    return [File.generated(config, (folder / name).as_posix(), content=content) for name, content in contents.items()]


def _file(path: str, root: Path, config: MkDocsConfig) -> File:
    return File(path, str(root), config.site_dir, config.use_directory_urls)
