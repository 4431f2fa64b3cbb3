"""What the broker needs before it starts: Java, and Ivy, which downloads the jars of Kafka."""

from __future__ import annotations

import importlib.util
import sys
import time
import zipfile
from pathlib import Path

import pytest

import devtools.broker.ivy as ivy_module
from devtools.broker import BrokerStartError, Cluster
from devtools.broker.ivy import find_ivy
from devtools.broker.jars import kafka_jars
from devtools.broker.java import find_java


class TestJava:
    @pytest.fixture(autouse=True)
    def no_java(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.delenv("JAVA_HOME", raising=False)
        monkeypatch.setenv("PATH", str(tmp_path))

    def test_none_at_all(self) -> None:
        with pytest.raises(BrokerStartError, match=r"needs Java, and there is none.*Install Java 17"):
            Cluster().start()

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
