"""Runs Ivy, which downloads jars and their dependencies into a folder. Ivy comes from PySpark, or else jgo downloads it."""

from __future__ import annotations

import importlib.util
import os
import re
import selectors
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from xml.sax.saxutils import quoteattr

from devtools.errors import BrokerStartError
from spark_groupsource.install import with_extra

Progress = Callable[[str], None]

SILENCE_LIMIT_S = 180.0
"""How long Ivy may print nothing, because Ivy waits forever for a server that does not answer."""

IVY_VERSION = "2.5.3"
"""The version of Ivy (1.4 MB) to download if PySpark, whose 456 MB `make broker` does not need, is not installed. PySpark 4.3 has
the same version."""

_RANGE_CHOICE = re.compile(r"^\s*\[(?P<version>[^\]]+)\] (?P<organisation>[^#\s]+)#(?P<module>[^;\s]+);[\[\]]")
_DOWNLOADING = re.compile(r"^downloading \S*/([^/\s]+) \.\.\.")
_FOUND = re.compile(r"^\s*found [^#\s]+#(\S+);(\S+) in ")
_UNRESOLVED = re.compile(r"^\s*:: (?P<organisation>[^#\s]+)#(?P<module>[^;\s]+);(?P<version>[^:\s]+): (?P<reason>.*)$")


@dataclass(frozen=True)
class Dependency:
    """A Maven module. `version` may be an Ivy range such as `[4.0,5.0[`."""

    organisation: str
    module: str
    version: str
    transitive: bool = True


@dataclass(frozen=True)
class IvyAnswer:
    """The result of Ivy: the version that it chose for each range, and what it could not resolve."""

    succeeded: bool
    chosen: dict[str, str]
    unresolved: tuple[str, ...]
    missing_in_repository: bool


def find_ivy(cache: Path) -> Path:
    """Return the path of an Ivy jar: from PySpark, from SPARK_HOME, or else downloaded into `cache`.

    Raises:
        BrokerStartError: There is none, and it cannot be downloaded.
    """
    spec = importlib.util.find_spec("pyspark")
    homes = [Path(home) for home in (spec.submodule_search_locations or [])] if spec else []
    if "SPARK_HOME" in os.environ:
        homes.append(Path(os.environ["SPARK_HOME"]))
    for home in homes:
        for jar in sorted((home / "jars").glob("ivy-*.jar"), reverse=True):
            return jar
    return _downloaded_ivy(cache)


def _downloaded_ivy(cache: Path) -> Path:
    try:
        from jgo.maven import MavenContext
    except ImportError:
        raise BrokerStartError(
            "The broker's jars are downloaded with Apache Ivy. No PySpark with jars/ivy-*.jar is installed, SPARK_HOME names no "
            f"Spark, and jgo, which would download it, is missing. Install it: {with_extra('broker')}"
        ) from None
    try:
        return MavenContext(repo_cache=cache).project("org.apache.ivy", "ivy").at_version(IVY_VERSION).artifact().resolve()
    except (OSError, RuntimeError) as error:
        raise BrokerStartError(
            f"Apache Kafka is downloaded with Apache Ivy {IVY_VERSION}, which cannot be had from Maven: {error}. Without access "
            "to a repository, set SPARK_HOME to an Apache Spark, which has an Ivy, or install PySpark into this environment."
        ) from error


def run_ivy(
    java: str, dependencies: Sequence[Dependency], folder: Path, retrieve: Path | None, log: IO[str], progress: Progress
) -> IvyAnswer:
    """Resolve dependencies and download their jars.

    Ivy's own cache and home are below `folder`, so nothing in ~/.ivy2 is read or written. Later runs with the same `folder` do
    not download a jar again.

    Args:
        java: the path of `java`.
        dependencies: what to resolve.
        folder: the folder for Ivy's own files. If Ivy itself has to be downloaded, its jar is kept beside this folder.
        retrieve: the folder for the jars; `None` to resolve only.
        log: everything that Ivy prints is written to this file.
        progress: called with a line of text at each step.

    Raises:
        BrokerStartError: There is no Ivy, or it prints nothing for three minutes.
    """
    ivy_file = folder / "ivy.xml"
    ivy_file.write_text(_ivy_file(dependencies), encoding="utf-8")
    argv = [java, f"-Divy.default.ivy.user.dir={folder / 'home'}", "-jar", str(find_ivy(folder.parent))]
    argv += ["-cache", str(folder / "cache"), "-ivy", str(ivy_file), "-confs", "default"]
    if retrieve is None:
        argv += ["-types", "none"]
    else:
        argv += ["-retrieve", f"{retrieve}/[artifact]-[revision](-[classifier]).[ext]", "-types", "jar", "bundle"]
    reader = _OutputReader(log, progress)
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    ) as process:
        try:
            if process.stdout is not None:
                _feed_lines(process.stdout, reader)
        except BaseException:
            process.kill()
            raise
    return reader.answer(process.returncode)


def _ivy_file(dependencies: Sequence[Dependency]) -> str:
    lines = [
        f"<dependency org={quoteattr(needed.organisation)} name={quoteattr(needed.module)} rev={quoteattr(needed.version)} "
        f'conf="default->default" transitive="{str(needed.transitive).lower()}"/>'
        for needed in dependencies
    ]
    info = '<info organisation="spark_groupsource" module="broker"/>'
    return f'<ivy-module version="2.0">{info}<dependencies>{"".join(lines)}</dependencies></ivy-module>\n'


def _feed_lines(stream: IO[bytes], reader: _OutputReader) -> None:
    pending = b""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while True:
            if not selector.select(SILENCE_LIMIT_S):
                raise BrokerStartError(
                    f"Ivy printed nothing for {SILENCE_LIMIT_S:.0f} s while it downloaded Apache Kafka's jars."
                )
            data = os.read(stream.fileno(), 65536)
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                reader.line(line.decode("utf-8", "replace"))
            if not data:
                reader.line(pending.decode("utf-8", "replace"))
                return


class _OutputReader:
    """The parser of Ivy's output, line by line. Ivy reports its progress in no other form."""

    def __init__(self, log: IO[str], progress: Progress) -> None:
        self._log = log
        self._progress = progress
        self._found = 0
        self._downloaded = 0
        self._chosen: dict[str, str] = {}
        self._unresolved: dict[str, None] = {}
        self._server_trouble = False

    def line(self, line: str) -> None:
        self._log.write(line + "\n")
        if match := _RANGE_CHOICE.match(line):
            self._chosen[match["module"]] = match["version"]
        elif match := _FOUND.match(line):
            self._found += 1
            if self._found % 10 == 0:
                self._progress(f"found {self._found} modules, last {match[1]} {match[2]}")
        elif match := _DOWNLOADING.match(line):
            self._downloaded += 1
            self._progress(f"downloading jar {self._downloaded}: {match[1]}")
        elif match := _UNRESOLVED.match(line):
            self._unresolved[f"{match['module']} {match['version']}: {match['reason']}"] = None
        elif "server access error" in line.lower() or "server error" in line.lower() or "[FAILED" in line:
            self._server_trouble = True

    def answer(self, returncode: int) -> IvyAnswer:
        missing = bool(self._unresolved) and not self._server_trouble
        missing = missing and all(text.endswith("not found") for text in self._unresolved)
        return IvyAnswer(returncode == 0 and not self._unresolved, self._chosen, tuple(self._unresolved), missing)
