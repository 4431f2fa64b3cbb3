"""The documents keep up with the code: commands parse, code compiles, no error or module is left out."""

from __future__ import annotations

import ast
import functools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from devtools.broker.jars import KAFKA_VERSION
from spark_groupsource import errors
from spark_groupsource.cli.main import main

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "spark_groupsource"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "conf").rglob("*.md"))]
ERRORS = ROOT / "docs" / "errors.md"
WARNINGS = ROOT / "docs" / "warnings.md"
DESIGN = ROOT / "docs" / "design.md"


class Block(NamedTuple):
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


@functools.cache
def tokens(page: Path) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8"))


def inlines(page: Path) -> Iterator[Token]:
    for token in tokens(page):
        yield from token.children or ()


def blocks(language: str) -> list[Block]:
    return [
        Block(page, (token.map or [0])[0] + 1, language, token.content)
        for page in PAGES
        for token in tokens(page)
        if token.type == "fence" and token.info.strip() == language
    ]


def commands() -> Iterator[tuple[Block, list[str]]]:
    for block in blocks("sh"):
        for line in block.text.replace("\\\n", " ").splitlines():
            if words := shlex.split(line, comments=True):
                yield block, words


def parses(words: list[str]) -> None:
    """The command exists, and has these options and arguments; nothing is looked up or run."""
    command: click.Command = main
    rest = words[1:]
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        name = rest.pop(0)
        found = command.get_command(click.Context(command), name)
        assert found is not None, f"there is no command {name}"
        command = found
    context = click.Context(command, info_name=" ".join(words[:2]))
    given, left, _ = command.make_parser(context).parse_args(rest)
    missing = [one.name for one in command.params if one.required and given.get(one.name or "") is None]
    assert not missing, f"{missing} is required"
    assert not left, f"{left} is too much"


def test_every_groupkafka_command_in_a_page_exists_with_its_options() -> None:
    ours = [(block, words) for block, words in commands() if Path(words[0]).name == "groupkafka"]
    assert len(ours) > 10
    for block, words in ours:
        try:
            parses(words)
        except (click.UsageError, AssertionError) as wrong:
            pytest.fail(f"{block}: {shlex.join(words)}: {wrong}")


def test_every_program_of_ours_in_a_command_is_in_a_page_or_a_file() -> None:
    shown = {block.text.split("\n")[0] for block in blocks("python")}
    for block, words in commands():
        if Path(words[0]).name in ("python", "spark-submit"):
            programs = [word for word in words if word.endswith(".py")]
            files = {one for one in programs if (ROOT / one).exists() or (ROOT / "conf" / one).exists()}
            missing = [one for one in programs if f"# {one}" not in shown and one not in files]
            assert not missing, f"{block}: {missing}"


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_the_code_of_a_page_compiles(block: Block) -> None:
    compile(block.text, str(block), "exec")


def test_the_map_of_the_code_names_every_package_and_no_module_that_is_gone() -> None:
    named = {token.content for token in inlines(DESIGN) if token.type == "code_inline"}
    modules = [path.relative_to(PACKAGE).as_posix() for path in PACKAGE.glob("*.py") if path.name != "__init__.py"]
    modules += [f"{path.parent.name}/" for path in PACKAGE.glob("*/__init__.py")]
    assert [module for module in sorted(modules) if module not in named] == []
    gone = [
        name
        for name in named
        if re.fullmatch(r"(\w+/)?\w+\.py", name) and not (PACKAGE / name).exists() and not (ROOT / name).exists()
    ]
    assert gone == []


@functools.cache
def exceptions() -> set[str]:
    """Every class that descends from GroupKafkaError, wherever it stands in the package."""
    bases = {
        node.name: [base.id for base in node.bases if isinstance(base, ast.Name)]
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    }
    known = {"GroupKafkaError"}
    while more := {name for name, parents in bases.items() if known & set(parents)} - known:
        known |= more
    return known


@functools.cache
def warnings() -> set[str]:
    """The text of every warning that the package logs, with `…` for what is filled in."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id="log" | "logger" | "warnings"), attr="warning" | "warn")) | (
                    ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr="_warn_once"))
                ):
                    text = node.args[0]
                    if isinstance(text, ast.Name) and text.id == "text":
                        continue  # in `_warn_once` itself, whose callers have the text
                    assert isinstance(text, ast.Constant), f"{path.name}:{node.lineno}: what is filled in goes behind the text"
                    found.add(re.sub(r"%[sdr]|%\.\d+f", "…", str(text.value)))
    return found


BASES = frozenset({"GroupKafkaError", "CommitError", "HandoffError"})
"""Errors that are never raised themselves: they share one sentence."""

OF_SPARK = "Spark's own: "


def entries(page: Path) -> dict[str, str]:
    """Return the text of each entry of a page by its heading."""
    sections = re.split(r"^#{2,3} ", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {heading: text for heading, _, text in (section.partition("\n") for section in sections[1:]) if "`" in heading}


@functools.cache
def warnings_without_an_action() -> dict[str, list[str]]:
    """Return the rows of the table of docs/warnings.md, by the text of the warning."""
    rows = re.findall(r"^\| `([^|]+)` \| (.*) \|$", WARNINGS.read_text(encoding="utf-8"), re.MULTILINE)
    return {text: rest.split(" | ") for text, rest in rows}


def test_every_error_has_an_entry_and_nothing_else_has() -> None:
    assert {name for name, value in vars(errors).items() if isinstance(value, type)} <= exceptions()
    assert {heading.strip("`") for heading in entries(ERRORS) if not heading.startswith(OF_SPARK)} == exceptions()


def test_every_warning_has_one_entry_or_one_row_of_the_table_and_nothing_else_has() -> None:
    found = [text for heading in entries(WARNINGS) for text in re.findall(r"`(.+?)`", heading)] + [*warnings_without_an_action()]
    assert len(found) > 10
    assert len(found) == len(set(found))
    # Of a long one its beginning is enough.
    assert [text for text in sorted(warnings()) if not any(text.startswith(entry) for entry in found)] == []
    assert [entry for entry in sorted(found) if not any(text.startswith(entry) for text in warnings())] == []


def test_each_entry_says_what_happened_what_it_means_for_the_data_if_not_the_default_and_what_to_do() -> None:
    texts = {**entries(ERRORS), **entries(WARNINGS)}
    parts = {heading: re.findall(r"^\*\*.+?\*\*", text, re.MULTILINE) for heading, text in texts.items()}
    wanted = (["**What to do.**"], ["**Your data.**", "**What to do.**"])
    assert [heading for heading, found in parts.items() if found[:2] not in wanted and heading.strip("`") not in BASES] == []
    assert [heading for heading, text in texts.items() if text.strip().startswith("**")] == []
    assert [text for text, cells in warnings_without_an_action().items() if len(cells) != 2 or not all(cells)] == []


@pytest.mark.parametrize("page", [ERRORS, WARNINGS], ids=lambda page: page.name)
def test_the_default_is_said_once_on_a_page(page: Path) -> None:
    text = " ".join(page.read_text(encoding="utf-8").split())
    assert text.count("othing is lost or duplicated") == 1


def test_the_page_names_the_kafka_that_make_broker_starts_and_the_tests_use() -> None:
    (tested,) = [line for line in (ROOT / "docs" / "running.md").read_text().splitlines() if line.startswith("| `make test` |")]
    assert f"Apache Kafka {KAFKA_VERSION} " in tested
