"""`make native-check`: runs the tests of the native code with its C compiled for AddressSanitizer and UndefinedBehaviorSanitizer.

A copy of the package with this library comes first on the path, and the sanitizers are loaded before Python.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PROJECT = Path(__file__).parents[1]
FLAGS = ["-std=c99", "-O1", "-g", "-fPIC", "-shared", "-fno-omit-frame-pointer", "-Wall", "-Wextra", "-Wconversion", "-Werror"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
# The sanitizers do not write through Python, so pytest must not capture file descriptors: a crash would lose their report.
PYTEST = ["--import-mode=append", "--capture=sys", "-p", "no:cacheprovider", "-q", "-c", str(PROJECT / "pyproject.toml")]
UNIT_TESTS = [
    str(PROJECT / "tests/unit" / file)
    for file in (
        "native/test_libraries.py",
        "fetch/test_native_consumer.py",
        "fetch/test_native_arrow.py",
        "sink/test_native_producer.py",
        "sink/test_columns.py",
        "sink/test_checksum.py",
    )
]
TESTS = (
    [*PYTEST, *UNIT_TESTS],
    [*PYTEST, str(PROJECT / "tests/kafka/sink"), "-k", "native"],
    [*PYTEST, str(PROJECT / "tests/kafka/fetch"), "-k", "native or both_readers"],
)
# The tests start Java without the sanitizer. Without arguments: check that this is the copy, and that it loads.
RUN = """
import os, sys
del os.environ["LD_PRELOAD"]
if sys.argv[1:]:
    import pytest
    sys.exit(pytest.main(sys.argv[1:]))
from spark_groupsource.native import libraries
libraries.load_libraries()
sys.exit(not libraries.__file__.startswith(os.getcwd()))
"""
ENVIRONMENT = {
    # Python and the libraries free much memory only at exit. The tests count what our C code must free.
    "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    # With these, the sanitizer sees each buffer instead of a pool of buffers.
    "PYTHONMALLOC": "malloc",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}


def main() -> int:
    compiler = os.environ.get("CC", "cc")
    if shutil.which(compiler) is None:
        return refuse(f"There is no C compiler ({compiler}). Install one, for example: apt install gcc")
    runtimes = [runtime(compiler, name) for name in ("libasan.so", "libubsan.so")]
    if None in runtimes:
        return refuse(
            f"{compiler} has no shared libasan and libubsan. Install them (apt install gcc; dnf install libasan libubsan), or "
            "set CC=gcc if this is another compiler."
        )
    with tempfile.TemporaryDirectory(prefix="groupsource-native-") as folder:
        package = Path(folder) / "spark_groupsource"
        shutil.copytree(PROJECT / "spark_groupsource", package, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        library = package / "native" / "_native.so"
        sources = [str(package / "native" / name) for name in ("_intake.c", "_outlet.c")]
        subprocess.run([compiler, *FLAGS, *SANITIZERS, "-o", str(library), *sources], check=True)
        environment = {
            **os.environ,
            **ENVIRONMENT,
            "PYTHONPATH": os.pathsep.join([folder, str(PROJECT)]),
            "LD_PRELOAD": ":".join(str(each) for each in runtimes),
        }
        for arguments in ([], *TESTS):
            # In that folder, so that the current directory does not come before it on the path.
            done = subprocess.run([sys.executable, "-c", RUN, *arguments], cwd=folder, env=environment, check=False)
            if done.returncode != 0:
                return done.returncode
    return 0


def runtime(compiler: str, name: str) -> Path | None:
    """Return the shared runtime of a sanitizer, or None: a compiler without one returns the bare name."""
    found = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()
    return Path(found) if os.path.isabs(found) and Path(found).exists() else None


def refuse(reason: str) -> int:
    print(f"make native-check: {reason}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
