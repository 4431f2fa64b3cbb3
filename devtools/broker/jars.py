"""Apache Kafka's jars, downloaded once into the user's cache.

The cache is `$XDG_CACHE_HOME/spark_groupsource/kafka`, or else `~/.cache/spark_groupsource/kafka`. It contains:

- `4.3.1/`: the jars of one version, `jars.json` with their sizes, and `formatted/`, an empty formatted log folder.
  `classes.jsa`, if the tests have made one
- `newest-4`: the version that was chosen as the newest 4.x. Delete the file to look for a newer one
- `ivy.log`: the output of Ivy's last run
- `lock`: held by the process that downloads
- `partial-*`: a download that is not complete. If no process holds the lock, it was interrupted

A version's folder is created by one rename, after Ivy has succeeded and every jar has opened as a zip file.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from devtools.broker.ivy import Dependency, IvyAnswer, Progress, run_ivy
from devtools.broker.storage import make_template
from devtools.errors import BrokerStartError

KAFKA_VERSION = "4.4.0"
"""The version to start by default, with which the tests run. docs/running.md names it."""

KAFKA = "org.apache.kafka"
"""The organisation of Apache Kafka's modules in the Maven repository."""

_BROKER = "kafka_2.13"

_MOST_ATTEMPTS = 6
"""How many releases of a series to try."""

_MANIFEST = "jars.json"
_EXACT = re.compile(r"\d+\.\d+\.\d+(?:[-.]\w+)*")
_SERIES = re.compile(r"\d+(?:\.\d+)?")
_NEWEST_SERIES = "4"


@dataclass(frozen=True)
class KafkaJars:
    """The jars of one version of Apache Kafka: broker and tools, with a logging backend."""

    version: str
    folder: Path

    @property
    def classpath(self) -> str:
        """The class path for `java -cp`."""
        return f"{self.folder}/*"

    @property
    def template(self) -> Path:
        """A formatted log folder, from which each node's folder is copied."""
        return self.folder / "formatted"

    @property
    def classes(self) -> Path:
        """An archive of the classes that a broker loads, with which it starts in half the time. The tests make it."""
        return self.folder / "classes.jsa"


def default_cache() -> Path:
    """Return this user's cache folder. It may not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says that a relative path is ignored.
    root = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    return root / "spark_groupsource" / "kafka"


def kafka_jars(java: str, version: str | None, progress: Progress, cache: Path | None = None) -> KafkaJars:
    """Return the jars of a version, from the cache or else downloaded by Ivy (about half a minute).

    The release that was chosen for a series is kept, so the network is not asked again. Several processes may call this at the
    same time: one downloads, and the others wait for it.

    Args:
        java: the path of `java`.
        version: an exact version (`4.1.0`), or a series (`3.9`) for its newest release. `None` for the newest 4.x.
        progress: called with a line of text at each step.
        cache: the cache folder; `None` for this user's.

    Raises:
        BrokerStartError: The version cannot be downloaded, or the cache cannot be used.
    """
    wanted = _NEWEST_SERIES if version is None else version
    if not (_EXACT.fullmatch(wanted) or _SERIES.fullmatch(wanted)):
        raise BrokerStartError(f"{wanted!r} is not a Kafka version: use a version such as 4.1.0, or a series such as 4.1.")
    cache = cache or default_cache()
    cached = _cached(cache, wanted)
    if cached is not None:
        return cached
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _lock(cache, progress):
            return _cached(cache, wanted) or _resolve(java, wanted, cache, progress)
    except OSError as error:
        raise BrokerStartError(f"The cache of Apache Kafka's jars, {cache}, cannot be used: {error}") from error


def _cached(cache: Path, wanted: str) -> KafkaJars | None:
    version: str | None = wanted
    if not _EXACT.fullmatch(wanted):
        try:
            version = (cache / f"newest-{wanted}").read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return None
    if not version or not _EXACT.fullmatch(version) or not _is_whole(cache / version):
        return None
    return KafkaJars(version, cache / version)


def _is_whole(folder: Path) -> bool:
    try:
        sizes: dict[str, int] = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return False


@contextlib.contextmanager
def _lock(cache: Path, progress: Progress) -> Iterator[None]:
    with open(cache / "lock", "w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("waiting for another process that downloads Apache Kafka's jars")
            fcntl.flock(file, fcntl.LOCK_EX)
        # The kernel releases the lock when the file is closed, or when this process ends in any way.
        yield


def _resolve(java: str, wanted: str, cache: Path, progress: Progress) -> KafkaJars:
    for leftover in cache.glob("partial-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    partial = Path(tempfile.mkdtemp(prefix="partial-", dir=cache))
    try:
        with open(cache / "ivy.log", "w", encoding="utf-8") as log:
            resolution = _Resolution(java, partial, log, progress)
            if _EXACT.fullmatch(wanted):
                version = wanted
                answer = resolution.exact(version)
                if not answer.succeeded:
                    raise _not_resolved(f"Apache Kafka {version}", answer, cache)
            else:
                version = _newest(wanted, resolution, cache)
        jars = _check_jars(resolution.jars_of(version), cache)
        progress(f"formatting an empty log folder for Apache Kafka {version}")
        make_template(java, f"{jars}/*", version, jars / "formatted")
        return _publish(jars, version, wanted, cache)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _newest(series: str, resolution: _Resolution, cache: Path) -> str:
    lower, upper = _bounds(series)
    name = f"a release of Apache Kafka {series}"
    refusal: IvyAnswer | None = None
    for _ in range(_MOST_ATTEMPTS):
        chosen = resolution.newest_below(lower, upper)
        if isinstance(chosen, IvyAnswer):
            raise _not_resolved(name, refusal or chosen, cache)
        upper = chosen
        # A release candidate sorts below its release. The next attempt looks below the candidate.
        if not re.fullmatch(r"[\d.]+", chosen):
            continue
        refusal = resolution.exact(chosen)
        if refusal.succeeded:
            return chosen
        # A release's modules reach the repository one by one. If one is missing, try an older release.
        if not refusal.missing_in_repository:
            raise _not_resolved(name, refusal, cache)
    raise BrokerStartError(
        f"None of the {_MOST_ATTEMPTS} newest releases of Apache Kafka {series} can be downloaded. See {cache / 'ivy.log'}"
    )


def _bounds(series: str) -> tuple[str, str]:
    numbers = [int(part) for part in series.split(".")]
    following = [*numbers[:-1], numbers[-1] + 1]
    return ".".join(map(str, [*numbers, 0])), ".".join(map(str, [*following, 0]))


class _Resolution:
    """Runs of Ivy that share one temporary Ivy cache. Each process has a separate one, so the cache never has half a jar."""

    def __init__(self, java: str, folder: Path, log: IO[str], progress: Progress) -> None:
        self._java = java
        self._folder = folder
        self._log = log
        self._progress = progress

    def jars_of(self, version: str) -> Path:
        return self._folder / version

    def newest_below(self, lower: str, upper: str) -> str | IvyAnswer:
        """Return the newest version of the broker in [lower, upper), or Ivy's answer if there is none."""
        self._progress(f"looking for the newest Apache Kafka from {lower}, below {upper}")
        probe = Dependency(KAFKA, _BROKER, f"[{lower},{upper}[", transitive=False)
        answer = run_ivy(self._java, [probe], self._folder, None, self._log, self._progress)
        return answer.chosen.get(_BROKER, answer)

    def exact(self, version: str) -> IvyAnswer:
        """Resolve the broker with all its dependencies, then Kafka's tools and a logging backend for its SLF4J."""
        self._progress(f"resolving Apache Kafka {version}")
        jars = self.jars_of(version)
        jars.mkdir(exist_ok=True)
        broker = [Dependency(KAFKA, _BROKER, version)]
        answer = run_ivy(self._java, broker, self._folder, jars, self._log, self._progress)
        if not answer.succeeded:
            return answer
        # The tools have the broker's dependencies, plus the web server of Kafka Connect (20 MB, half a minute), which is skipped.
        extras = [Dependency(KAFKA, "kafka-tools", version, transitive=False)]
        # Kafka's modules do not include a logging backend. Without one, a broker that fails logs nothing.
        for jar in jars.glob("slf4j-api-*.jar"):
            slf4j = jar.stem.removeprefix("slf4j-api-")
            extras.append(Dependency("org.slf4j", "slf4j-simple", slf4j, transitive=False))
        return run_ivy(self._java, extras, self._folder, jars, self._log, self._progress)


def _check_jars(folder: Path, cache: Path) -> Path:
    jars = sorted(folder.glob("*.jar"))
    damaged = [jar.name for jar in jars if not _opens(jar)]
    if damaged:
        raise BrokerStartError(f"These jars are incomplete: {', '.join(damaged)}. Try again. Ivy's log: {cache / 'ivy.log'}")
    if not any(jar.name.startswith(f"{_BROKER}-") for jar in jars):
        raise BrokerStartError(f"Ivy succeeded, but there is no jar of the broker. Ivy's log: {cache / 'ivy.log'}")
    return folder


def _opens(jar: Path) -> bool:
    try:
        # The directory of a zip file is at its end, so an incomplete file has none.
        zipfile.ZipFile(jar).close()
    except (OSError, zipfile.BadZipFile):
        return False
    return True


def _publish(jars: Path, version: str, wanted: str, cache: Path) -> KafkaJars:
    sizes = {file.relative_to(jars).as_posix(): file.stat().st_size for file in sorted(jars.rglob("*")) if file.is_file()}
    (jars / _MANIFEST).write_text(json.dumps(sizes, indent=1), encoding="utf-8")
    target = cache / version
    if not _is_whole(target):
        # The folder is damaged: one of its files was truncated or deleted. A running broker keeps its jars open.
        shutil.rmtree(target, ignore_errors=True)
        jars.rename(target)
    if wanted != version:
        note = jars.parent / "newest"
        note.write_text(version + "\n", encoding="utf-8")
        note.rename(cache / f"newest-{wanted}")
    return KafkaJars(version, target)


def _not_resolved(what: str, answer: IvyAnswer, cache: Path) -> BrokerStartError:
    reasons = "; ".join(answer.unresolved[:3]) or "no answer from the repository"
    advice = "Does the version exist?" if answer.missing_in_repository else "Is the Maven repository reachable from here?"
    return BrokerStartError(f"Ivy could not resolve {what}: {reasons}. {advice} Ivy's log: {cache / 'ivy.log'}")
