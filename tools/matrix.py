"""`make test-matrix`: runs the tests that need Spark, on the latest patch of each Spark version that the source supports.

Arguments such as 4.1, or paths of tests, select versions and tests, as in `make test-iceberg`. Each Spark version has its own
environment, which is updated first and contains the tests' log.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

PROJECT = Path(__file__).parents[1]
SPARKS = ("4.0", "4.1", "4.2", "4.3")
TESTS = ("tests/spark", "tests/unit/spark/test_version_readers.py")
# As in `make test`.
IN_PROCESSES = ("-n", "3", "--dist", "loadfile", "--no-loadscope-reorder", "--max-worker-restart=0")
# PySpark before 4.2 leaves it to the garbage collector to close the sockets of `collect`.
LEFT_OPEN = ("-W", "ignore:unclosed <socket:ResourceWarning")
WHAT_IS_THERE = """
import platform, pyarrow, pyspark
print(f"Spark {pyspark.__version__}, Python {platform.python_version()}, pyarrow {pyarrow.__version__}")
"""


def main(chosen: Sequence[str]) -> int:
    """Run the chosen tests on the chosen versions, or all. Print one line for each version, and return the exit status."""
    tests = [one for one in chosen if one.startswith("tests/")]
    sparks = [one for one in chosen if one not in tests]
    passed = [test_on(spark, tests or TESTS) for spark in sparks or SPARKS]
    return 0 if all(passed) else 1


def test_on(spark: str, tests: Sequence[str]) -> bool:
    """Install, test, print the result, and return whether all tests passed."""
    folder = PROJECT / f".venv-spark-{spark}"
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    wanted = ("--upgrade", "--editable", ".[dev]", f"pyspark=={spark}.*")
    pip = (str(python), "-m", "pip", "install", "--progress-bar", "off", *wanted)
    if run(pip, folder / "install.log") != 0:
        print(f"Spark {spark}: not installed; see {folder / 'install.log'}", flush=True)
        return False
    there = subprocess.run([python, "-c", WHAT_IS_THERE], check=True, capture_output=True, text=True).stdout.strip()
    log = folder / "tests.log"
    # This only makes Spark start faster. The harness that it runs needs a source with a limit.
    if spark >= "4.2":
        run((str(python), "-m", "tests.harness.classes"), log)
    failed = run((str(python), "-m", "pytest", *IN_PROCESSES, *(LEFT_OPEN if spark < "4.2" else ()), *tests), log)
    *_, summary = (line for line in log.read_text().splitlines() if line.startswith("="))
    print(f"{there}: {summary.strip('= ')}" + (f"; see {log}" if failed else ""), flush=True)
    return not failed


def run(argv: Sequence[str], log: Path) -> int:
    """Run a command with its output in a log, and return its exit status."""
    with log.open("wb") as output:
        return subprocess.run(argv, cwd=PROJECT, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
