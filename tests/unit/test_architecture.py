"""Imports between packages run one way, pure packages import neither Spark nor Kafka, and the tests of a module can be found."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "spark_groupsource"
TESTS = ROOT / "tests"
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
    modules = imported_modules(tmp_path / "made_up")
    assert modules == {
        "made_up.base": set(),
        "made_up.low.good": {"made_up.base"},
        "made_up.low.asks": {"made_up.high.top"},
        "made_up.high.top": {"made_up.low.good"},
        "made_up.high.typed": {"made_up.low.asks"},
    }
    assert circle(modules) == []
    assert set(circle(between_packages(modules))) == {"low", "high"}


LONGEST_NAME = 100
"""Of a test. A longer one is cut in the output of pytest, and nobody types it."""

TESTED_ELSEWHERE: Mapping[str, str] = {
    "brokers/group_offsets": "tests/kafka/sink/test_coordinators.py",
    "errors": "tests/unit/pages/test_docs.py",
    "fetch/intake": "tests/unit/fetch/test_native_consumer.py",
    "group/assignment": "tests/unit/query/test_assignment_wait.py",
    "install": "tests/unit/test_release.py",
    "sink/contract": "tests/unit/sink/test_failures.py",
    "sink/output_topic": "tests/kafka/sink/test_choices.py",
    "sink/pure_producer": "tests/unit/sink/test_writing.py",
    "spark/datasource": "tests/unit/spark/test_core_imports.py",
    "timeouts": "tests/unit/query/test_durable_watch.py",
    "top_level/pyspark_groupkafka": "tests/unit/spark/test_core_imports.py",
}
"""Modules that have no file of tests of their own name, each with the file that covers it and imports it.

Constants, types and wiring. Whatever decides something has a file `test_<module>.py`.
"""


def test_the_tests_of_a_module_are_in_the_file_of_its_name() -> None:
    without = set(without_tests_of_their_own(PACKAGE, TESTS))
    listed = TESTED_ELSEWHERE.keys()
    assert sorted(without - listed) == [], "name a file test_<module>.py, or list the file that covers the module"
    assert sorted(listed - without) == [], "these have a file of their own, or are no module: remove them from the list"


@pytest.mark.parametrize(("module", "file"), TESTED_ELSEWHERE.items(), ids=TESTED_ELSEWHERE.keys())
def test_a_module_without_a_file_of_its_own_is_imported_by_the_file_that_covers_it(module: str, file: str) -> None:
    assert module in imported_by(ROOT / file)


def imported_by(file: Path) -> set[str]:
    """Every module of the package, as `folder/name`, that a file of tests imports, also in a program that stands in it."""
    text = file.read_text(encoding="utf-8")
    found = set(re.findall(r"^(?:from|import) ([\w.]+)", text, re.MULTILINE))
    found |= {f"{package}.{name}" for package, name in re.findall(r"^from ([\w.]+) import (\w+)", text, re.MULTILINE)}
    # Spark imports what stands in the folder `top_level` by its name alone, from where it is installed.
    return {name.removeprefix(f"{PACKAGE.name}.").replace(".", "/") for name in found} | {f"top_level/{name}" for name in found}


def without_tests_of_their_own(package: Path, tests: Path) -> Iterator[str]:
    """Each module, as `folder/name`, that has no file `test_<name>.py` below `tests`.

    A name that modules of two packages have says nothing by itself: then the file is in a folder of the package's name.
    """
    files = {path.relative_to(tests) for path in tests.rglob("test_*.py")}
    modules = [path.relative_to(package) for path in sorted(package.rglob("*.py")) if not path.name.startswith("__")]
    for module in modules:
        shared = sum(other.stem == module.stem for other in modules) > 1
        own = [file for file in files if file.stem == f"test_{module.stem.removeprefix('_')}"]
        if not any(not shared or module.parts[0] in file.parts for file in own):
            yield module.with_suffix("").as_posix()


def test_no_test_has_a_name_that_nobody_reads_to_its_end() -> None:
    nodes = [node for path in sorted(TESTS.rglob("test_*.py")) for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    names = {node.name for node in nodes if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}
    assert len(names) > 1000
    assert sorted(name for name in names if len(name) > LONGEST_NAME) == []


def test_the_checker_of_tests_sees_a_module_without_a_file_and_two_of_one_name(tmp_path: Path) -> None:
    package, tests = tmp_path / "made_up", tmp_path / "tests"
    for name in ("low/__init__.py", "low/_own.py", "low/names.py", "high/names.py", "high/bare.py", "root.py"):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).touch()
    for name in ("unit/test_own.py", "unit/low/test_names.py", "kafka/test_root.py"):
        (tests / name).parent.mkdir(parents=True, exist_ok=True)
        (tests / name).touch()
    assert list(without_tests_of_their_own(package, tests)) == ["high/bare", "high/names"]
