"""Finds the Java that runs the broker."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from devtools.errors import BrokerStartError

OLDEST_JAVA = 17
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_ADVICE = f"Install Java {OLDEST_JAVA} or newer, or set JAVA_HOME to one."


def find_java() -> str:
    """Return the path of the `java` that Spark would use: the one in JAVA_HOME, or else the first on PATH.

    Raises:
        BrokerStartError: There is none, it does not run, or it is older than 17.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        java = str(Path(home, "bin", "java"))
        if not os.access(java, os.X_OK):
            raise BrokerStartError(f"JAVA_HOME is {home}, which has no bin/java. {_ADVICE}")
    else:
        found = shutil.which("java")
        if found is None:
            raise BrokerStartError(
                f"The broker needs Java, and there is none: JAVA_HOME is not set, and no java is on PATH. {_ADVICE}"
            )
        java = found
    major = _major_version(java)
    if major < OLDEST_JAVA:
        raise BrokerStartError(f"The broker needs Java {OLDEST_JAVA} or newer; {java} is Java {major}. {_ADVICE}")
    return java


def _major_version(java: str) -> int:
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BrokerStartError(f"{java} does not run: {error}. {_ADVICE}") from error
    text = answer.stderr + answer.stdout
    match = _VERSION.search(text)
    # macOS has a /usr/bin/java that only reports that no Java is installed.
    if answer.returncode != 0 or match is None:
        raise BrokerStartError(f"{java} -version prints no Java version: {text.strip()[:500]} {_ADVICE}")
    return int(match[1])
