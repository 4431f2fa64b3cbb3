"""Imports between packages run one way, and pure packages import neither pyspark nor confluent_kafka."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "spark_groupsource"
DESIGN = ROOT / "docs" / "design.md"

ORDER = [
    ("version", "number"),
    ("errors", "raised"),
    ("partition", "coordinates"),
    ("timeouts", "times"),
    ("patience", "retries"),
    ("handoff", "rules"),
    ("checkpoint", "Spark's logs"),
    ("observer", "reports"),
    ("kafka_settings", "translation"),
    ("brokers", "requests"),
    ("group", "membership"),
    ("fetch", "tasks"),
    ("sink", "writing"),
    ("options", "validation"),
    ("query", "cycle"),
    ("metrics", "Prometheus"),
    ("spark", "adapter"),
    ("top_level", "look-up"),
    ("__init__", "API"),
    ("cli", "commands"),
    ("__main__", "entry"),
]
"""From the bottom up, each with what it is for: a package or module imports only what stands above it in this list."""

PURE = {"handoff"}
"""Packages that decide and ask nobody. docs/design.md names them, and some modules of other packages."""

IMPURE = {"pyspark", "confluent_kafka"}


class Arrow(NamedTuple):
    """An import of one package (or module of the root) by another."""

    source: str
    target: str
    where: str

    def __str__(self) -> str:
        return f"{self.where}: {self.source} imports {self.target}"


def arrows(package: Path) -> Iterator[Arrow]:
    """Every import between two packages, wherever it stands: under TYPE_CHECKING and in functions, too."""
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for target in _imported(node, package, (package.name, *parts[:-1])):
                if target != parts[0]:
                    yield Arrow(parts[0], target, f"{path.relative_to(package)}:{getattr(node, 'lineno', 0)}")


def _imported(node: ast.AST, package: Path, here: tuple[str, ...]) -> set[str]:
    """The packages of ours that one statement imports; `here` is the package of the module that it stands in."""
    match node:
        case ast.Import(names=names):
            full = [tuple(alias.name.split(".")) for alias in names]
        case ast.ImportFrom(module=module, names=names, level=level):
            base = (here[: len(here) - level + 1] if level else ()) + tuple((module or "").split(".") if module else ())
            full = [(*base, alias.name) for alias in names]
        case _:
            return set()
    ours = [parts for parts in full if parts[0] == package.name]
    return {parts[1] if len(parts) > 1 and _exists(package, parts[1]) else "__init__" for parts in ours}


def _exists(package: Path, name: str) -> bool:
    return (package / name).is_dir() or (package / f"{name}.py").exists()


def back_arrows(found: Iterable[Arrow], order: Sequence[str]) -> list[str]:
    """The imports of something that does not stand above the importer in the order."""
    level = {name: number for number, name in enumerate(order)}
    return [str(one) for one in found if level[one.target] >= level[one.source]]


def circles(found: Iterable[Arrow]) -> list[list[str]]:
    """The sets of packages that import each other, directly or through others."""
    reached: dict[str, set[str]] = {}
    for one in found:
        reached.setdefault(one.source, set()).add(one.target)
    grown = True
    while grown:
        grown = False
        for name, targets in reached.items():
            further = set().union(*(reached.get(target, set()) for target in targets)) - targets
            reached[name] = targets | further
            grown = grown or bool(further)
    in_circles = {frozenset(other for other in reached if name in reached[other] and other in reached[name]) for name in reached}
    return sorted(sorted(circle) for circle in in_circles if len(circle) > 1)


def modules(package: Path, names: Iterable[str]) -> list[str]:
    """Every module of these packages and modules, as it is imported."""
    paths: list[Path] = []
    for name in names:
        folder = package.joinpath(*name.split("."))
        paths += sorted(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]
    relative = [path.relative_to(package.parent).with_suffix("") for path in paths]
    return [".".join(path.parts).removesuffix(".__init__") for path in relative]


def impure_imports(package: Path, names: Iterable[str], impure: Iterable[str]) -> dict[str, set[str]]:
    """The modules of `names` whose import brings something impure along. One process imports each of them afresh."""
    look = (
        "import importlib, json, sys\n"
        "before, found = set(sys.modules), {}\n"
        "for name in sys.argv[2:]:\n"
        "    importlib.import_module(name)\n"
        "    found[name] = sorted(set(sys.argv[1].split(',')) & set(sys.modules))\n"
        "    for loaded in set(sys.modules) - before:\n"
        "        if loaded.split('.')[0] in [name.split('.')[0], *sys.argv[1].split(',')]:\n"
        "            del sys.modules[loaded]\n"
        "print(json.dumps({name: brought for name, brought in found.items() if brought}))"
    )
    command = [sys.executable, "-c", look, ",".join(sorted(impure)), *modules(package, names)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=package.parent)
    return {name: set(brought) for name, brought in json.loads(done.stdout).items()}


def called_pure() -> list[str]:
    """The packages and modules that docs/design.md calls pure."""
    (sentence,) = re.findall(
        r"((?:`[\w.]+`(?:,|\sand)?\s+)+)import\s+neither\s+pyspark\s+nor\s+confluent_kafka", DESIGN.read_text(encoding="utf-8")
    )
    return re.findall(r"`([\w.]+)`", sentence)


def test_every_package_has_its_place_in_the_order() -> None:
    there = {path.stem for path in PACKAGE.glob("*.py")} | {path.parent.name for path in PACKAGE.glob("*/*.py")}
    assert {name for name, _ in ORDER} == there


def test_imports_between_packages_run_one_way() -> None:
    found = list(arrows(PACKAGE))
    assert len(found) > 100
    assert back_arrows(found, [name for name, _ in ORDER]) == []
    assert circles(found) == []


def test_what_the_design_calls_pure_imports_neither_spark_nor_kafka() -> None:
    assert set(called_pure()) >= PURE
    assert len(modules(PACKAGE, called_pure())) >= 10
    assert impure_imports(PACKAGE, called_pure(), IMPURE) == {}


def test_the_cycle_is_stepped_through_and_records_are_read_without_spark() -> None:
    names = ["query", "group", "brokers", "metrics", "fetch.pure_consumer", "fetch.native_consumer"]
    assert impure_imports(PACKAGE, names, {"pyspark"}) == {}


def test_the_checker_sees_imports_in_functions_under_type_checking_and_relative_ones(tmp_path: Path) -> None:
    files = {
        "base.py": "",
        "low/good.py": "from made_up import base\n",
        "low/asks.py": "def late():\n    from made_up.high.top import value\n",
        "high/top.py": "from ..low import good\n",
        "high/typed.py": "import typing\n\nif typing.TYPE_CHECKING:\n    import made_up.low.asks\n",
    }
    for name, text in files.items():
        path = tmp_path / "made_up" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert {str(one) for one in arrows(tmp_path / "made_up")} == {
        "low/good.py:1: low imports base",
        "low/asks.py:2: low imports high",
        "high/top.py:1: high imports low",
        "high/typed.py:4: high imports low",
    }
