"""`make registry`: runs Apicurio's schema registry, with its storage in memory and an API that is compatible with Confluent's.

Its archive is downloaded once, with Ivy, into the cache beside the broker's jars.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import tarfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import click

from devtools import program
from devtools.broker import watch
from devtools.broker.config import HOST
from devtools.broker.ivy import Progress, find_ivy
from devtools.broker.java import find_java
from devtools.broker.ports import is_free
from devtools.downloads import downloaded
from devtools.errors import BrokerStartError

VERSION = "3.0.9"
"""The latest version in Maven Central that runs on Java 17."""
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
START_LIMIT_S = 180.0
LOOK_EVERY_S = 0.2


@click.command(name="registry")
@click.option("--port", type=click.IntRange(1, 65535), default=8081, show_default=True, help="The port on 127.0.0.1.")
def registry(port: int) -> None:
    """Run a schema registry until Ctrl-C, and print its address. It keeps its schemas only until then.

    The first start downloads it, about 100 MB.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    if not is_free(port):
        raise BrokerStartError(f"Port {port} is in use. Choose another one: make registry REGISTRY='--port 8082'")
    with contextlib.suppress(KeyboardInterrupt), _running(registry_command(port, _say)) as process:
        end = time.monotonic() + START_LIMIT_S
        while not answers(port):
            if process.poll() is not None or time.monotonic() > end:
                raise BrokerStartError("The registry does not answer. See its output above.")
            time.sleep(LOOK_EVERY_S)
        click.echo(f"registry.url = {address(port)}")
        sys.stdout.flush()
        process.wait()
        raise BrokerStartError("The registry has ended. See its output above.")


def address(port: int) -> str:
    """Return the address for clients of Confluent's API."""
    return f"http://localhost:{port}/apis/ccompat/v7"


def registry_command(port: int, progress: Progress = lambda _line: None) -> list[str]:
    """Return the command that runs the registry on a port. The first call downloads it.

    Raises:
        BrokerStartError: There is no Java, or the registry cannot be downloaded.
    """

    def unpacked(folder: Path) -> Path:
        progress(f"downloading Apicurio Registry {VERSION}, about 100 MB")
        return _unpacked(folder)

    home = downloaded(f"apicurio-{VERSION}", unpacked)
    listen = (f"-Dquarkus.http.host={HOST}", f"-Dquarkus.http.port={port}")
    jvm = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
    return [find_java(), *jvm, *listen, "-jar", str(home / f"apicurio-registry-app-{VERSION}-runner.jar")]


def answers(port: int) -> bool:
    """Return whether the registry on this port answers."""
    try:
        with urllib.request.urlopen(f"{address(port)}/subjects", timeout=10) as answer:  # noqa: S310
            return bool(answer.status == 200)
    except OSError:
        return False


def _unpacked(folder: Path) -> Path:
    """Return the unpacked registry, whose archive Ivy has downloaded into the folder."""
    file, settings, archive = folder / "ivy.xml", folder / "ivysettings.xml", folder / "apicurio-registry-app.tar.gz"
    file.write_text(IVY_FILE, encoding="utf-8")
    settings.write_text(IVY_SETTINGS, encoding="utf-8")
    ivy = [find_java(), f"-Divy.default.ivy.user.dir={folder / 'home'}", "-jar", str(find_ivy(folder.parent))]
    ivy += ["-cache", str(folder / "cache"), "-settings", str(settings), "-ivy", str(file)]
    ivy += ["-confs", "default", "-types", "tar.gz", "-retrieve", f"{folder}/[artifact].[ext]"]
    answer = subprocess.run(ivy, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DOWNLOAD_LIMIT_S, check=False)
    if not archive.is_file():
        raise BrokerStartError(f"Apicurio Registry {VERSION} cannot be downloaded:\n{answer.stdout[-2000:]}{answer.stderr}")
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != SHA256:
        raise BrokerStartError(f"{archive.name} has changed: its SHA-256 is {found} instead of {SHA256}.")
    with tarfile.open(archive) as tar:
        tar.extractall(folder / "unpacked", filter="data")
    return folder / "unpacked"


@contextlib.contextmanager
def _running(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command whose output goes to stderr, and which ends with this process."""
    watched = [sys.executable, "-I", "-S", watch.__file__, str(os.getpid()), "-", *command]
    with subprocess.Popen(watched, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True) as process:
        try:
            yield process
        finally:
            if process.stdin is not None:
                process.stdin.close()
            process.wait()


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _say(line: str) -> None:
    click.echo(line, err=True)


if __name__ == "__main__":
    program.run(registry, "python -m devtools.registry")
