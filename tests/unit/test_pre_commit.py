"""The commands before a commit are those of `make lint`, and nothing is downloaded for them."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
REPOSITORIES = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]


def recipe(target: str) -> list[str]:
    """Return the commands of a target of the Makefile."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (lines,) = re.findall(rf"^{target}:.*\n((?:\t.+\n)+)", makefile, re.MULTILINE)
    return [line.strip().replace("$(BIN)", ".venv/bin") for line in lines.splitlines()]


def test_the_hooks_run_what_make_lint_runs_and_come_from_this_repository_alone() -> None:
    hooks = [hook for repository in REPOSITORIES for hook in repository["hooks"]]
    assert [hook["entry"] for hook in hooks] == recipe("lint")
    assert {hook["language"] for hook in hooks} == {"system"}
    assert {repository["repo"] for repository in REPOSITORIES} == {"local"}
