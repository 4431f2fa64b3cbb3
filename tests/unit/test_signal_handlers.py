"""A signal handler runs in the main thread, wherever that is: it may not wait for a lock that the main thread holds."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("spark_groupsource", "conf", "devtools", "benchmarks", "tools", "notebooks", "tests")
TAKE_A_LOCK = frozenset({"set", "wait", "acquire", "notify", "notify_all"})
"""Methods of threading's Event, Lock and Condition. `Event.set` waits for the lock that `Event.wait` holds for a moment."""


def handlers_with_locks(source: str) -> list[int]:
    """Return the lines at which a handler is given to `signal.signal` that calls such a method itself."""
    tree = ast.parse(source)
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    lines = []
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "signal.signal":
            handler = call.args[1]
            body = functions.get(handler.id, handler) if isinstance(handler, ast.Name) else handler
            methods = {node.attr for node in ast.walk(body) if isinstance(node, ast.Attribute)}
            lines += [call.lineno] * bool(methods & TAKE_A_LOCK)
    return lines


def test_no_signal_handler_takes_a_lock() -> None:
    files = [file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py")]
    assert any("signal.signal(" in file.read_text(encoding="utf-8") for file in files)
    found = {str(file.relative_to(ROOT)): handlers_with_locks(file.read_text(encoding="utf-8")) for file in files}
    assert {file: lines for file, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "source",
    [
        "signal.signal(signal.SIGTERM, lambda _number, _frame: stopping.set())",
        "def leave(number, frame):\n    stopping.set()\nsignal.signal(signal.SIGTERM, leave)",
    ],
)
def test_one_that_does_is_found(source: str) -> None:
    assert len(handlers_with_locks(source)) == 1
