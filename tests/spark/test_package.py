"""The sdist and the wheel: built as a release is, installed into an empty environment, and read with there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import py4j  # type: ignore[import-untyped]
import pyspark
import pytest

from devtools.broker import Cluster
from spark_groupsource import __version__
from tests.conftest import MakeTopic, Produce
from tests.harness.classes import OPTIONS
from tests.support.fresh import copied_source
from tests.support.spark_process import JVM_OPTIONS, ROOT

pytestmark = pytest.mark.long

FOUND = "spark_groupsource/top_level/pyspark_groupkafka.py"
NAME = f"spark_groupsource-{__version__}"
LIMIT_S = 300.0

# Prints one line for each record, a micro-batch each, and then how many a batch read finds. The source runs in Spark's runner and
# in its workers, all of them of this environment.
READ = """
import sys
from pyspark.sql import SparkSession
servers, topic, checkpoint = sys.argv[1:]
local = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false"}
spark = SparkSession.builder.master("local[1]").config(map=local).getOrCreate()
options = {"kafka.bootstrap.servers": servers, "kafka.group.id": topic, "subscribe": topic, "startingOffsets": "earliest"}
stream = spark.readStream.format("groupkafka").options(**options, maxOffsetsPerTrigger="1").load()
query = stream.writeStream.format("memory").queryName("read").option("checkpointLocation", checkpoint).start()
query.processAllAvailable()
query.stop()
for row in spark.table("read").collect():
    print("record", row.offset, bytes(row.value).decode())
print("The stream has ended", file=sys.stderr, flush=True)
print("records", spark.read.format("groupkafka").options(**options).load().count())
"""


def run(argv: Sequence[str], folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """In an environment that knows nothing of the one that the tests run in: Spark starts as `pip install` leaves it."""
    environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "SPARK_HOME", OPTIONS}}
    return subprocess.run(
        argv, cwd=folder, env={**environment, **more}, capture_output=True, text=True, check=False, timeout=LIMIT_S
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that was built from it; each in an isolated environment."""
    folder = tmp_path_factory.mktemp("built")
    source = copied_source(folder / "source")
    # What docs/databricks.md has people build there.
    (source / "conf" / "databricks" / "dist").mkdir()
    (source / "conf" / "databricks" / "dist" / f"{NAME}-py3-none-manylinux_2_17_x86_64.whl").touch()
    done = run([sys.executable, "-m", "build", "--outdir", str(folder), str(source)], folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel, what it requires, and the PySpark of the tests."""

    folder: Path
    wheel: Path

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    @property
    def native_reader(self) -> Path:
        (compiled,) = self.folder.glob("lib/python3*/site-packages/spark_groupsource/native/_native.so")
        return compiled

    def install(self, extra: str = "") -> None:
        pip = [sys.executable, "-m", "pip", "--python", self.python, "install", "--quiet", f"{self.wheel}{extra}"]
        done = run(pip, self.folder)
        assert done.returncode == 0, done.stderr

    def groupkafka(self, *words: str) -> subprocess.CompletedProcess[str]:
        return run([str(self.folder / "bin" / "groupkafka"), *words], self.folder)

    def read(self, cluster: Cluster, topic: str) -> tuple[list[str], str]:
        """What a stream and a batch read find in a topic, as lines, and what stood on stderr."""
        argv = [self.python, "-c", READ, cluster.bootstrap_servers, topic, str(self.folder / f"checkpoint-{topic}")]
        done = run(argv, self.folder, PYSPARK_PYTHON=self.python, JDK_JAVA_OPTIONS=JVM_OPTIONS)
        assert done.returncode == 0, done.stderr
        return [line for line in done.stdout.splitlines() if line.startswith("record")], done.stderr


@pytest.fixture(scope="module")
def installed(built: Path) -> Installed:
    (wheel,) = built.glob("*.whl")
    environment = Installed(built / "environment", wheel)
    venv.create(environment.folder)
    (packages,) = environment.folder.glob("lib/python3*/site-packages")
    # PySpark is large, and clusters bring their own.
    for package in (pyspark, py4j):
        (folder,) = package.__path__
        (packages / package.__name__).symlink_to(folder)
    environment.install()
    return environment


def test_the_sdist_has_what_a_build_needs_and_no_more(built: Path) -> None:
    with tarfile.open(built / f"{NAME}.tar.gz") as sdist:
        names = {name.removeprefix(f"{NAME}/") for name in sdist.getnames()}
    assert names >= {"CHANGELOG.md", "LICENSE", "README.md", "docs/running.md", "pyproject.toml", "setup.py"}
    assert names >= {
        "spark_groupsource/native/_intake.c",
        "spark_groupsource/native/_native.h",
        "spark_groupsource/py.typed",
        FOUND,
    }
    assert not {name for name in names if name.split("/")[0] in {"tests", "benchmarks", "source"}}
    assert not {name for name in names if name.endswith((".so", ".pyc", ".whl"))}


def test_the_wheel_has_the_package_and_says_what_it_is(built: Path) -> None:
    (file,) = built.glob("*.whl")
    assert re.search(r"-py3-none-(linux|macosx)_", file.name), "it has the compiled native reader, for every Python"
    with zipfile.ZipFile(file) as wheel:
        names = set(wheel.namelist())
        metadata = message_from_bytes(wheel.read(f"{NAME}.dist-info/METADATA"))
    information = {name for name in names if name.startswith(f"{NAME}.dist-info/")}
    package = {str(one.relative_to(ROOT)) for one in (ROOT / "spark_groupsource").rglob("*.py")} | {"spark_groupsource/py.typed"}
    # Spark finds it beside the package only.
    package = package - {FOUND} | {Path(FOUND).name}
    assert names - information - package == {"spark_groupsource/native/_native.so"}
    assert names >= package
    assert f"{NAME}.dist-info/licenses/LICENSE" in information
    check_metadata(metadata)


def check_metadata(metadata: Message) -> None:
    assert (metadata["Name"], metadata["Version"]) == ("spark-groupsource", __version__)
    assert (metadata["License-Expression"], metadata["Description-Content-Type"]) == ("Apache-2.0", "text/markdown")
    required = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert {re.split(r"[<>=]", line)[0] for line in required} == {"confluent-kafka", "pyarrow", "pydantic"}
    assert set(metadata.get_all("Provides-Extra", [])) >= {"cli", "dev", "spark"}
    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_a_stream_reads_with_either_reader_in_an_empty_environment(
    installed: Installed, cluster: Cluster, topic: MakeTopic, produce: Produce
) -> None:
    """Without the native reader the driver says so once for each query and batch read, and the workers give the same reason."""

    def read() -> str:
        name = topic()
        produce(name, [(None, "first"), (None, "second")])
        records, said = installed.read(cluster, name)
        assert records == ["record 0 first", "record 1 second", "records 2"]
        return said

    assert "pure Python reader" not in read()

    # As a wheel that was built without a compiler would be.
    compiled = installed.native_reader
    compiled.rename(compiled.with_suffix(".away"))
    said = read()
    package = compiled.parents[1]
    for part in said.split("The stream has ended"):
        (line,) = [line for line in part.splitlines() if "The driver's installation has no native reader: " in line]
        assert f"its C code has not been compiled in {package}, " in line
        assert "install the spark-groupsource wheel" in line
    (line,) = {line.partition("WARNING ")[2] for line in said.splitlines() if "by the pure Python reader" in line}
    assert f"its C code has not been compiled in {package}" in line
    assert "To use the native reader: install the spark-groupsource wheel" in line


def test_the_command_line_is_an_extra(installed: Installed) -> None:
    without = installed.groupkafka("--version")
    assert (without.returncode, without.stdout) == (1, "")
    assert without.stderr == "groupkafka needs click and rich: pip install '.[cli]' in a clone of the project\n"

    installed.install("[cli]")
    done = installed.groupkafka("--version")
    assert (done.returncode, done.stdout) == (0, f"groupkafka, version {__version__}\n"), done.stderr
    imports = "import spark_groupsource.cli.main, spark_groupsource.cli.render"
    assert run([installed.python, "-c", imports], installed.folder).returncode == 0
