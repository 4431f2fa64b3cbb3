"""`make test-lower-bounds`: runs tests with the oldest dependencies that pyproject.toml allows, in a separate environment.

This applies to the dependencies of the package and of its extras. The tools in `dev` and `release` have their latest versions.
`make test-matrix` covers PySpark.
"""

from __future__ import annotations

import re
import sys
import venv
from importlib.metadata import requires

from tools.matrix import PROJECT, run

FOLDER = PROJECT / ".venv-lower-bounds"
TESTS = (
    "tests/unit",
    "tests/kafka/fetch",
    "tests/kafka/query/test_cycle.py",
    "tests/kafka/query/test_held_claims.py",
    "tests/kafka/cli/test_claims.py",
    "tests/spark/test_batch_reader.py",
)


def lower_bounds() -> list[str]:
    """Return each requirement, except those of `demo`, `dev`, `release` and `spark`, with its lower bound as the only version."""
    wanted = [one for one in requires("spark-groupsource") or () if not re.search(r"extra == .(demo|dev|release|spark)\b", one)]
    return [re.sub(r"^([\w-]+).*?>=([\d.]+).*$", r"\1==\2", one) for one in wanted]


def main() -> int:
    """Install, test, print the result, and return the exit status."""
    python = FOLDER / "bin" / "python"
    if not python.exists():
        venv.create(FOLDER, with_pip=True)
    bounds = FOLDER / "bounds.txt"
    bounds.write_text("\n".join(lower_bounds()) + "\n")
    wanted = ("--upgrade", "--editable", ".[dev]", "--constraint", str(bounds))
    if run((str(python), "-m", "pip", "install", "--progress-bar", "off", *wanted), FOLDER / "install.log") != 0:
        print(f"not installed; see {FOLDER / 'install.log'}")
        return 1
    log = FOLDER / "tests.log"
    status = run((str(python), "-m", "pytest", *TESTS), log)
    *_, summary = (line for line in log.read_text().splitlines() if line.startswith("="))
    print(f"{' '.join(lower_bounds())}: {summary.strip('= ')}; see {log}")
    return status


if __name__ == "__main__":
    sys.exit(main())
