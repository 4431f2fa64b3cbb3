"""A real schema registry for the tests: Apicurio Registry with its storage in memory, and its API that is Confluent's.

It listens on a free port of 127.0.0.1, and ends with the process that runs the tests.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import tarfile
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.downloads import downloaded
from devtools.broker.ivy import find_ivy
from devtools.broker.java import find_java
from devtools.broker.ports import free_ports
from tests.support.spark_process import START_LIMIT_S, SparkProcess, running
from tests.support.waiting import until

VERSION = "3.0.9"
"""The newest in Maven Central that runs on Java 17."""
IVY_FILE = f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
<info organisation="spark_groupsource" module="registry"/>
<dependencies><dependency org="io.apicurio" name="apicurio-registry-app" rev="{VERSION}" transitive="false">
<artifact name="apicurio-registry-app" type="tar.gz" ext="tar.gz" m:classifier="all"/>
</dependency></dependencies></ivy-module>
"""
IVY_SETTINGS = """<ivysettings><settings defaultResolver="central"/>
<resolvers><ibiblio name="central" m2compatible="true" usepoms="false"/></resolvers></ivysettings>
"""
"""Maven Central, without the metadata of modules: the archive has everything in it."""
SHA256 = "2b28181501a20cbf6efcd77f9b7153908fc01f3d3a7c32024c0bd9e1b04c8a43"
DOWNLOAD_LIMIT_S = 600.0


class Registry:
    """A running registry: where it is, and what it was asked for."""

    def __init__(self, url: str, process: SparkProcess) -> None:
        self.url = url
        self._process = process

    def fetched(self) -> Counter[int]:
        """Return how often the schema of each id was fetched, by the registry's access log."""
        return Counter(map(int, re.findall(r'method="GET" path="/apis/ccompat/v7/schemas/ids/(\d+)', self._process.log())))

    def stop(self) -> None:
        self._process.close()


@contextmanager
def registry(folder: Path) -> Iterator[Registry]:
    """Start a registry, with its log in the folder, and wait until it answers."""
    port = free_ports(1)[0]
    home = downloaded(f"apicurio-{VERSION}", _unpacked)
    listen = ("-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}")
    command = [find_java(), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *listen]
    with running("registry", folder, [*command, "-jar", str(home / f"apicurio-registry-app-{VERSION}-runner.jar")]) as process:
        url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
        until(lambda: _answers(f"{url}/subjects"), "the registry answers", START_LIMIT_S)
        yield Registry(url, process)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310
            return bool(answer.status == 200)
    except OSError:
        return False


def _unpacked(folder: Path) -> Path:
    """Return the unpacked registry, whose archive PySpark's Ivy has downloaded into the folder."""
    file, settings, archive = folder / "ivy.xml", folder / "ivysettings.xml", folder / "apicurio-registry-app.tar.gz"
    file.write_text(IVY_FILE, encoding="utf-8")
    settings.write_text(IVY_SETTINGS, encoding="utf-8")
    ivy = [find_java(), f"-Divy.default.ivy.user.dir={folder / 'home'}", "-jar", str(find_ivy()), "-cache", str(folder / "cache")]
    ivy += ["-settings", str(settings), "-ivy", str(file), "-confs", "default", "-types", "tar.gz"]
    ivy += ["-retrieve", f"{folder}/[artifact].[ext]"]
    answer = subprocess.run(ivy, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DOWNLOAD_LIMIT_S, check=False)
    assert archive.is_file(), answer.stdout[-2000:] + answer.stderr
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    assert found == SHA256, f"{archive.name} is not what it was: {found}"
    with tarfile.open(archive) as tar:
        tar.extractall(folder / "unpacked", filter="data")
    return folder / "unpacked"
