"""A signal handler runs in the main thread, wherever that is: it may not wait for a lock that the main thread holds."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("spark_groupsource", "conf", "devtools", "benchmarks", "tools", "notebooks")
TAKE_A_LOCK = frozenset({"set", "clear", "wait", "acquire", "release", "notify", "notify_all", "get"})
"""Methods of threading's Event, Lock and Condition, and of a Queue. `Event.set` waits for the lock that `wait` has at times."""


def handlers(source: str) -> list[ast.AST]:
    """Return the lambdas and functions that `signal.signal` is given. Methods are not looked at, nor what a handler calls."""
    tree = ast.parse(source)
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "signal.signal"]
    given = [call.args[1] for call in calls]
    return [functions.get(one.id, one) if isinstance(one, ast.Name) else one for one in given]


def takes_a_lock(handler: ast.AST) -> bool:
    return any(
        isinstance(node, ast.With) or (isinstance(node, ast.Attribute) and node.attr in TAKE_A_LOCK) for node in ast.walk(handler)
    )


def test_no_signal_handler_takes_a_lock() -> None:
    sources = {file: file.read_text(encoding="utf-8") for folder in FOLDERS for file in (ROOT / folder).rglob("*.py")}
    found = {str(file.relative_to(ROOT)): handlers(text) for file, text in sources.items() if "signal.signal(" in text}
    assert {"spark_groupsource/spark/graceful_stop.py", "devtools/demo/query.py"} <= {
        file for file, each in found.items() if each
    }
    assert [file for file, each in found.items() if any(map(takes_a_lock, each))] == []
