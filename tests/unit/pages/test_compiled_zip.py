"""The commands of docs/performance.md that compile `pyspark.zip`: what Spark's Python processes import from it is compiled."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pyspark

from tests.support.page_programs import blocks

LIB = Path(pyspark.__file__).parent / "python" / "lib"
# Compiling these would take most of the test's time. No process of Spark imports them before it connects.
LARGE = {"connect", "ml", "mllib", "tests"}


def test_what_spark_imports_from_the_zip_is_compiled_and_the_rest_is_as_before(tmp_path: Path) -> None:
    (commands,) = (block for block in blocks("docs/performance.md", "sh") if "pyspark.zip" in block)
    lib = tmp_path / "python" / "lib"
    lib.mkdir(parents=True)
    with zipfile.ZipFile(LIB / "pyspark.zip") as whole, zipfile.ZipFile(lib / "pyspark.zip", "w") as small:
        names = [
            name for name in whole.namelist() if not LARGE & set(Path(name).parts) and not name.startswith("pyspark/pandas/")
        ]
        for name in names:
            small.writestr(name, whole.read(name))
    path = os.pathsep.join([str(lib / "pyspark.zip"), *map(str, LIB.glob("py4j-*.zip"))])
    assert imported_from(path) == str(lib / "pyspark.zip" / Path("pyspark/util.py"))

    # With the Python of this test as `python`, and no other folder of it.
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    search = os.pathsep.join([str(tmp_path / "bin"), os.environ["PATH"]])
    subprocess.run(["sh", "-ec", commands], check=True, env={**os.environ, "SPARK_HOME": str(tmp_path), "PATH": search})

    assert imported_from(path) == str(lib / "pyspark.zip" / Path("pyspark/util.pyc"))
    with zipfile.ZipFile(lib / "pyspark.zip") as compiled:
        assert {name for name in names if not name.endswith("/")} <= set(compiled.namelist())
    assert os.listdir(lib) == ["pyspark.zip"]


def imported_from(path: str) -> str:
    """Return the file of a module that a daemon of Spark imports, with this path before all others."""
    command = [sys.executable, "-c", "import pyspark.daemon, pyspark.util; print(pyspark.util.__file__)"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    return done.stdout.strip()
