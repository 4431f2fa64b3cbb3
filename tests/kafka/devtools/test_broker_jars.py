"""Resolving Kafka's jars, with an Ivy of our own in place of the real one: what is tested is our cache."""

from __future__ import annotations

import concurrent.futures
import importlib.util
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import zipfile
from pathlib import Path

import pytest

import devtools.broker.ivy as ivy_module
from devtools.broker import BrokerStartError, Cluster
from devtools.broker.ivy import find_ivy
from devtools.broker.jars import default_cache, kafka_jars
from devtools.broker.java import find_java
from tests.support.waiting import until

# Stands for `java`: as Ivy it writes small jars and reports as Ivy does, as StorageTool it formats a folder.
FAKE_JAVA = """\
#!{python}
import os, re, sys, time, zipfile
from pathlib import Path

here = Path(__file__).parent
repository = dict(line.split() for line in (here / "repository").read_text().splitlines())
arguments = sys.argv[1:]
with open(here / "calls", "a") as calls:
    calls.write(" ".join(arguments) + "\\n")
if "kafka.tools.StorageTool" in arguments:
    text = Path(arguments[arguments.index("--config") + 1]).read_text()
    folder = Path(re.search("log.dirs=(.*)", text)[1])
    folder.mkdir()
    (folder / "meta.properties").write_text("node.id=1\\n")
    (folder / "bootstrap.checkpoint").write_text("features")
    sys.exit(0)
wanted = re.findall('name="([^"]+)" rev="([^"]+)"', Path(arguments[arguments.index("-ivy") + 1]).read_text())
target = None
if "-retrieve" in arguments:
    target = Path(arguments[arguments.index("-retrieve") + 1]).parent
unresolved = []
for name, version in wanted:
    if version.startswith("["):
        low, high = (tuple(map(int, part.split("."))) for part in version[1:-1].split(","))
        found = [one for one in repository.get(name, "").split(",")
                 if low <= tuple(map(int, one.split("."))) < high]
        if not found:
            unresolved.append((name, version))
            continue
        version = max(found, key=lambda one: tuple(map(int, one.split("."))))
        print(f"\\t[{{version}}] org.apache.kafka#{{name}};[4.0,5.0[")
    modules = [(name, version)]
    if name == "kafka_2.13":
        modules += [("kafka-tools-api", version), ("slf4j-api", "1.7.36")]
    for module, number in modules:
        if number not in repository.get(module, "").split(","):
            unresolved.append((module, number))
        elif target is not None:
            print(f"downloading https://repository/{{module}}-{{number}}.jar ...", flush=True)
            jar = target / f"{{module}}-{{number}}.jar"
            if os.environ.get("FAKE_IVY") == "hang":
                jar.write_bytes(b"PK")
                (here / "hanging").touch()
                parent = os.getppid()
                while os.getppid() == parent:
                    time.sleep(0.05)
                sys.exit(1)
            with zipfile.ZipFile(jar, "w") as archive:
                archive.writestr("a.class", "x" * 1000)
            if os.environ.get("FAKE_IVY") == "cut":
                jar.write_bytes(jar.read_bytes()[:100])
            time.sleep(0.05)
if os.environ.get("FAKE_IVY") == "offline" and target is not None:
    print("\\tServer access Error: timed out")
    unresolved = wanted
for name, version in unresolved:
    print(f"\\t\\t:: org.apache.kafka#{{name}};{{version}}: not found")
sys.exit(1 if unresolved else 0)
"""
MODULES = ("kafka_2.13", "kafka-tools", "kafka-tools-api")


class FakeIvy:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.java = str(folder / "java")
        self.cache = folder / "cache"
        Path(self.java).write_text(FAKE_JAVA.format(python=sys.executable))
        Path(self.java).chmod(0o755)
        self.publish(dict.fromkeys(MODULES, "4.2.0,4.3.1"))

    def publish(self, versions: dict[str, str]) -> None:
        lines = [f"{module} {numbers}" for module, numbers in {**versions, "slf4j-api": "1.7.36"}.items()]
        lines.append("slf4j-simple 1.7.36")
        (self.folder / "repository").write_text("\n".join(lines))

    def calls(self) -> int:
        log = self.folder / "calls"
        return len(log.read_text().splitlines()) if log.exists() else 0

    def resolve(self, version: str | None = None, progress: list[str] | None = None) -> str:
        jars = kafka_jars(self.java, version, (progress if progress is not None else []).append, self.cache)
        for jar in jars.folder.glob("*.jar"):
            assert jar.stat().st_size > 1000, jar
        return jars.version

    def partials(self) -> list[Path]:
        return list(self.cache.glob("partial-*"))


@pytest.fixture
def ivy(tmp_path: Path) -> FakeIvy:
    return FakeIvy(tmp_path)


class TestWhichVersion:
    def test_the_newest_is_resolved_once_and_remembered(self, ivy: FakeIvy) -> None:
        lines: list[str] = []
        assert ivy.resolve(progress=lines) == "4.3.1"
        assert "downloading jar 1: kafka_2.13-4.3.1.jar" in lines
        calls = ivy.calls()
        ivy.publish(dict.fromkeys(MODULES, "4.3.1,4.5.0"))
        assert ivy.resolve() == "4.3.1"
        assert ivy.calls() == calls

    @pytest.mark.parametrize("late", ["kafka-tools", "kafka-tools-api"])
    def test_a_release_published_in_part_makes_room_for_the_one_before(self, ivy: FakeIvy, late: str) -> None:
        ivy.publish({**dict.fromkeys(MODULES, "4.3.1,4.4.0"), late: "4.3.1"})
        assert ivy.resolve() == "4.3.1"

    def test_a_series_is_its_newest_release(self, ivy: FakeIvy) -> None:
        assert ivy.resolve("4.2") == "4.2.0"

    def test_a_version_that_does_not_exist_is_named(self, ivy: FakeIvy) -> None:
        with pytest.raises(BrokerStartError, match=r"Apache Kafka 4\.9\.9.*not found.*Does the version exist"):
            ivy.resolve("4.9.9")
        assert ivy.partials() == []

    def test_a_network_in_trouble_does_not_make_an_older_release_the_newest(
        self, ivy: FakeIvy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("FAKE_IVY", "offline")
        with pytest.raises(BrokerStartError, match="Is the Maven repository reachable"):
            ivy.resolve()
        monkeypatch.delenv("FAKE_IVY")
        assert ivy.resolve() == "4.3.1"

    @pytest.mark.parametrize("version", ["new", "4.x", "", "../4.3.1"])
    def test_what_is_no_version_is_refused(self, ivy: FakeIvy, version: str) -> None:
        with pytest.raises(BrokerStartError, match="is not a Kafka version"):
            ivy.resolve(version)
        assert ivy.calls() == 0


class TestCutDownloads:
    def test_a_cut_jar_is_refused_and_not_kept(self, ivy: FakeIvy, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FAKE_IVY", "cut")
        with pytest.raises(BrokerStartError, match=r"incomplete: .*kafka_2\.13-4\.3\.1\.jar"):
            ivy.resolve()
        monkeypatch.delenv("FAKE_IVY")
        assert ivy.resolve() == "4.3.1"
        assert ivy.partials() == []

    def test_a_resolver_killed_midway_leaves_nothing_that_counts(self, ivy: FakeIvy) -> None:
        with subprocess.Popen(resolver(ivy), env={**os.environ, "FAKE_IVY": "hang"}) as process:
            until((ivy.folder / "hanging").exists, "the first jar is begun")
            process.send_signal(signal.SIGKILL)
        assert ivy.partials() != []
        assert ivy.resolve() == "4.3.1"
        assert ivy.partials() == []

    @pytest.mark.parametrize("damage", ["cut", "removed", "no manifest"])
    def test_a_cache_damaged_later_is_resolved_again(self, ivy: FakeIvy, damage: str) -> None:
        ivy.resolve()
        jar = ivy.cache / "4.3.1" / "kafka_2.13-4.3.1.jar"
        if damage == "cut":
            jar.write_bytes(jar.read_bytes()[:50])
        else:
            (jar if damage == "removed" else jar.with_name("jars.json")).unlink()
        assert ivy.resolve() == "4.3.1"
        assert json.loads(jar.with_name("jars.json").read_text())[jar.name] == jar.stat().st_size


def resolver(ivy: FakeIvy) -> list[str]:
    script = """
        import sys
        from pathlib import Path
        from devtools.broker.jars import kafka_jars
        print(kafka_jars(sys.argv[1], None, lambda line: print(line, file=sys.stderr), Path(sys.argv[2])).version)
    """
    return [sys.executable, "-c", textwrap.dedent(script), ivy.java, str(ivy.cache)]


def test_processes_that_resolve_at_once_resolve_once(ivy: FakeIvy) -> None:
    def run(_: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(resolver(ivy), capture_output=True, text=True, check=True)

    with concurrent.futures.ThreadPoolExecutor() as pool:
        outcomes = list(pool.map(run, range(4)))
    assert [outcome.stdout for outcome in outcomes] == ["4.3.1\n"] * 4
    # The probe, the broker, the tools, the format: each of them once.
    assert ivy.calls() == 4


class TestJava:
    @pytest.fixture(autouse=True)
    def no_java(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.delenv("JAVA_HOME", raising=False)
        monkeypatch.setenv("PATH", str(tmp_path))

    def test_none_at_all(self) -> None:
        with pytest.raises(BrokerStartError, match=r"needs Java, and there is none.*Install Java 17"):
            Cluster().start()

    def test_a_java_home_without_java(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        with pytest.raises(BrokerStartError, match=r"JAVA_HOME is .* has no bin/java"):
            find_java()

    @pytest.mark.parametrize(
        ("text", "major"),
        [('openjdk version "11.0.2" 2019-01-15', 11), ('java version "1.8.0_202"', 8), ('openjdk version "16-ea"', 16)],
    )
    def test_one_that_is_too_old(self, tmp_path: Path, text: str, major: int) -> None:
        say(tmp_path / "java", text)
        with pytest.raises(BrokerStartError, match=f"needs Java 17 or newer; .* is Java {major}"):
            find_java()

    @pytest.mark.parametrize("text", ['openjdk version "17" 2021-09-14', 'openjdk version "25.0.1" 2025-10-21 LTS'])
    def test_one_that_will_do(self, tmp_path: Path, text: str) -> None:
        say(tmp_path / "java", text)
        assert find_java() == str(tmp_path / "java")

    def test_one_that_only_says_that_there_is_none(self, tmp_path: Path) -> None:
        say(tmp_path / "java", "Unable to locate a Java Runtime.", status=1)
        with pytest.raises(BrokerStartError, match="Unable to locate a Java Runtime"):
            find_java()


def say(java: Path, text: str, status: int = 0) -> None:
    java.write_text(f"#!/bin/sh\necho '{text}' >&2\nexit {status}\n")
    java.chmod(0o755)


class TestWhereTheCacheIs:
    def test_the_users_cache_folder(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert default_cache() == tmp_path / "spark_groupsource" / "kafka"

    @pytest.mark.parametrize("value", ["", "relative"])
    def test_without_a_usable_setting_it_is_below_home(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        monkeypatch.setenv("HOME", str(tmp_path))
        assert default_cache() == tmp_path / ".cache" / "spark_groupsource" / "kafka"


def downloaded_ivy(cache: Path) -> Path:
    """Return the jar; ask the repository up to three times while it cannot be reached."""
    for pause_s in (2, 10):
        try:
            return find_ivy(cache)
        except BrokerStartError as error:
            if not isinstance(error.__cause__, OSError):
                raise
            time.sleep(pause_s)
    return find_ivy(cache)


class TestIvy:
    @pytest.fixture(autouse=True)
    def no_spark(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("SPARK_HOME", raising=False)
        monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)

    def test_it_is_downloaded_where_there_is_no_pyspark(self, tmp_path: Path) -> None:
        jar = downloaded_ivy(tmp_path)
        assert tmp_path in jar.parents
        with zipfile.ZipFile(jar) as opened:
            assert "org/apache/ivy/Main.class" in opened.namelist()

    def test_a_repository_that_does_not_have_it_is_an_error_that_says_what_to_do(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ivy_module, "IVY_VERSION", "0.0.0")
        with pytest.raises(BrokerStartError, match=r"Ivy 0\.0\.0, .* not found in .*set SPARK_HOME"):
            downloaded_ivy(tmp_path)

    def test_a_missing_downloader_is_named_with_its_command(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "jgo.maven", None)
        with pytest.raises(BrokerStartError, match=r"jgo, which would download it, is missing.*\[broker\]"):
            find_ivy(tmp_path)


@pytest.mark.versions
def test_the_real_ivy_fills_an_empty_cache(tmp_path: Path) -> None:
    jars = kafka_jars(find_java(), None, lambda _line: None, tmp_path)
    assert jars.version.startswith("4.")
    assert (jars.template / "meta.properties").exists()
    assert any(jar.name.startswith("kafka-tools-") for jar in jars.folder.glob("*.jar"))
