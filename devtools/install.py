"""Makes a virtual environment with this project in it: `python devtools/install.py FOLDER REQUIREMENT...`.

It runs before anything is installed, so it imports only the standard library. It shows pip's current step. pip's full output is
in install.log in the folder, and is printed if the installation fails.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
import venv
from pathlib import Path

OLDEST = (3, 10)

LONG_S = 5.0
"""How long a step takes before it gets its own line if the output is not a terminal."""

LOOK_EVERY_S = 0.2

WIDTH = 78

BUILD_CONFIG = Path(__file__).resolve().with_name("build.cfg")
"""Makes pip build PySpark's wheel, which does not exist, in half of the time, by not compressing its jars again."""

_STEPS = (
    (re.compile(r"Collecting ([\w.-]+)"), "looking for {}"),
    (re.compile(r"Downloading (\S+ \([^)]+\))"), "downloading {}"),
    (re.compile(r"Using cached (\S+)"), "unpacking {}"),
    (re.compile(r"Building wheels for collected packages: (.+)"), "building {}"),
    (re.compile(r"Building (?:editable|wheel) for (\S+)"), "building {}"),
    (re.compile(r"(Installing) collected packages: .*"), "installing all packages"),
)


class Progress:
    """Shows the progress: one line on a terminal, or else a line for each step that takes a long time."""

    def __init__(self) -> None:
        self._terminal = sys.stdout.isatty()
        self._began = self._step_began = time.monotonic()
        self._step = ""
        self._shown = ""

    def step(self, what: str) -> None:
        """Begin another step."""
        self._step, self._step_began = what, time.monotonic()

    def show(self) -> None:
        """Show the step, if there is something new to show."""
        now = time.monotonic()
        if self._terminal:
            line = f"  {now - self._began:3.0f} s  {self._step}"
            print(f"\r{line[:WIDTH]:{WIDTH}}", end="", flush=True)
        elif self._step != self._shown and now - self._step_began >= LONG_S:
            self._shown = self._step
            print(f"  {now - self._began:3.0f} s  {self._step}", flush=True)

    def end(self, what: str) -> None:
        """Show the last line."""
        start = "\r" if self._terminal else ""
        line = f"{what} in {time.monotonic() - self._began:.0f} s"
        print(f"{start}{line:{WIDTH if self._terminal else 0}}", flush=True)


def main(folder: Path, requirements: list[str]) -> int:
    """Install, and return pip's exit status."""
    if sys.version_info < OLDEST:
        print(f"Python 3.10 or newer is needed; this is {sys.version.split()[0]}. Try: make PYTHON=python3.12 ...")
        return 1
    print(f"installing into {folder}", flush=True)
    progress = Progress()
    progress.step("creating the environment")
    done = threading.Event()
    shower = threading.Thread(target=_show, args=(progress, done))
    shower.start()
    try:
        status = _install(folder, requirements, progress)
    finally:
        done.set()
        shower.join()
    progress.end("failed" if status else "installed")
    if status:
        print((folder / "install.log").read_text(encoding="utf-8", errors="replace"))
    return status


def _install(folder: Path, requirements: list[str], progress: Progress) -> int:
    if not (folder / "bin" / "python").exists():
        venv.create(folder, with_pip=True)
    command = [str(folder / "bin" / "python"), "-m", "pip", "install", "--progress-bar", "off", *requirements]
    environment = {"DIST_EXTRA_CONFIG": str(BUILD_CONFIG), **os.environ}
    pip = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    assert pip.stdout is not None  # noqa: S101 -- it is a pipe
    with open(folder / "install.log", "w", encoding="utf-8") as log:
        for line in pip.stdout:
            log.write(line)
            for pattern, what in _STEPS:
                if match := pattern.search(line):
                    progress.step(what.format(match[1]))
                    break
    return pip.wait()


def _show(progress: Progress, done: threading.Event) -> None:
    while not done.wait(LOOK_EVERY_S):
        progress.show()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
