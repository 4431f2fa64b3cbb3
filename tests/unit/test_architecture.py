"""Imports between packages run one way, and pure packages import neither Spark nor Kafka."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "spark_groupsource"
DESIGN = ROOT / "docs" / "design.md"

PURE = {"handoff"}
"""Packages that decide and ask nobody. docs/design.md names them, and some modules of other packages."""

IMPURE = {"pyspark", "confluent_kafka"}


Graph = dict[str, set[str]]
"""What each module imports, or each package."""


def imported_modules(package: Path) -> Graph:
    """What each module imports of the package, wherever it stands: under TYPE_CHECKING and in functions, too."""
    found: Graph = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        targets = {target for node in nodes for target in _imported(node, package, parts[:-1])}
        module = ".".join(parts)
        found[module] = targets - {module}
    return found


def between_packages(modules: Graph) -> Graph:
    """What each package, or module beside the packages, imports of the others."""
    found: Graph = {}
    for module, targets in modules.items():
        package = module.split(".")[1]
        found.setdefault(package, set()).update({target.split(".")[1] for target in targets} - {package})
    return found


def circle(graph: Graph) -> list[str]:
    """The names on a way through the graph that leads back to where it begins; none if there is no such way."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        names: list[str] = error.args[1]
        return names
    return []


def _imported(node: ast.AST, package: Path, here: tuple[str, ...]) -> set[str]:
    """The modules of ours that one statement imports; `here` is the package of the module that it stands in."""
    match node:
        case ast.Import(names=names):
            full = [tuple(alias.name.split(".")) for alias in names]
        case ast.ImportFrom(module=module, names=names, level=level):
            base = (here[: len(here) - level + 1] if level else ()) + tuple((module or "").split(".") if module else ())
            full = [(*base, alias.name) for alias in names]
        case _:
            return set()
    return {_module(package, parts[1:]) for parts in full if parts[0] == package.name}


def _module(package: Path, parts: tuple[str, ...]) -> str:
    """The module in which a name stands: itself, or what its beginning names."""
    path = package.joinpath(*parts)
    if parts and path.with_suffix(".py").exists():
        return ".".join((package.name, *parts))
    return ".".join((package.name, *parts, "__init__")) if path.is_dir() else _module(package, parts[:-1])


def modules(names: Iterable[str]) -> list[str]:
    """Every module of these packages and modules, as it is imported."""
    paths: list[Path] = []
    for name in names:
        folder = PACKAGE.joinpath(*name.split("."))
        paths += sorted(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]
    relative = [path.relative_to(ROOT).with_suffix("") for path in paths]
    return [".".join(path.parts).removesuffix(".__init__") for path in relative]


def imports(names: Iterable[str]) -> set[str]:
    """Every module that a process has imported after these packages and modules."""
    look = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)\nprint(*sys.modules)"
    command = [sys.executable, "-c", look, *modules(names)]
    return set(subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout.split())


def called_pure() -> list[str]:
    """The packages and modules that docs/design.md calls pure."""
    (sentence,) = re.findall(
        r"((?:`[\w.]+`(?:,|\sand)?\s+)+)import\s+neither\s+pyspark\s+nor\s+confluent_kafka", DESIGN.read_text(encoding="utf-8")
    )
    return re.findall(r"`([\w.]+)`", sentence)


def test_imports_run_one_way_between_packages_and_between_modules() -> None:
    modules = imported_modules(PACKAGE)
    assert sum(map(len, modules.values())) > 500
    assert circle(modules) == []
    assert circle(between_packages(modules)) == []


def test_what_the_design_calls_pure_imports_neither_spark_nor_kafka() -> None:
    assert set(called_pure()) >= PURE
    assert len(modules(called_pure())) >= 10
    assert imports(called_pure()) & IMPURE == set()


def test_the_cycle_is_stepped_through_and_records_are_read_without_spark() -> None:
    names = ["query", "group", "brokers", "metrics", "fetch.pure_consumer", "fetch.native_consumer"]
    assert "pyspark" not in imports(names)
