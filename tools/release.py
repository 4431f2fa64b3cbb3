"""`make release`: builds all of a release's files in dist/.

In addition to the sdist and the wheels, these are an SBOM (CycloneDX) of everything that `pip install` installs, the changelog's
section, and checksums.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from spark_groupsource.version import __version__
from tools.matrix import PROJECT
from tools.wheels import DIST, build, git

NOTES = "RELEASE_NOTES.md"
SUMS = "SHA256SUMS"
SBOM = f"spark_groupsource-{__version__}.cdx.json"


def main() -> int:
    """Build and check the packages, write the other files, and print what is not ready yet."""
    packages = build(DIST)
    run("-m", "twine", "check", "--strict", *map(str, packages))
    (pure,) = DIST.glob("*-none-any.whl")
    write_sbom(pure, DIST / SBOM)
    heading, notes = section((PROJECT / "CHANGELOG.md").read_text(encoding="utf-8"), __version__)
    (DIST / NOTES).write_text(notes, encoding="utf-8")
    (DIST / SUMS).write_text(checksums(DIST), encoding="utf-8")
    print((DIST / SUMS).read_text(encoding="utf-8"), end="")
    if "Unreleased" in heading:
        print(f"not ready: CHANGELOG.md has no date for {__version__}", file=sys.stderr)
    if git("status", "--porcelain"):
        print("not ready: there are changes that are not committed", file=sys.stderr)
    return 0


def section(changelog: str, version: str) -> tuple[str, str]:
    """Return the heading of a version in the changelog, and the text below it."""
    found = re.search(rf"^(## \[{re.escape(version)}\][^\n]*)\n+(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if found is None:
        sys.exit(f"CHANGELOG.md has no section for {version}")
    return found[1], found[2].rstrip() + "\n"


def checksums(folder: Path) -> str:
    """Return the lines that `sha256sum --check` reads, for every file in a folder."""
    files = sorted(file for file in folder.iterdir() if file.name != SUMS)
    return "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)


def write_sbom(wheel: Path, file: Path) -> None:
    """Write the list of everything that `pip install` of a wheel installs today, without extras."""
    with tempfile.TemporaryDirectory(prefix="groupsource-sbom-") as folder:
        # Create the environment without pip, which would be in the list.
        venv.create(folder)
        python = str(Path(folder) / "bin" / "python")
        run("-m", "pip", "--python", python, "install", "--quiet", "--disable-pip-version-check", str(wheel))
        ours = ("--pyproject", str(PROJECT / "pyproject.toml"), "--mc-type", "library")
        run("-m", "cyclonedx_py", "environment", *ours, "--output-reproducible", "--output-file", str(file), python)
    # Add the version, which pyproject.toml takes from the package.
    sbom = json.loads(file.read_text(encoding="utf-8"))
    sbom["metadata"]["component"] |= {"version": __version__, "purl": f"pkg:pypi/spark-groupsource@{__version__}"}
    file.write_text(json.dumps(sbom, indent=2) + "\n", encoding="utf-8")


def run(*arguments: str) -> None:
    """Run a program from this environment, and exit if it fails."""
    done = subprocess.run([sys.executable, *arguments], cwd=PROJECT, check=False)
    if done.returncode != 0:
        sys.exit(done.returncode)


if __name__ == "__main__":
    sys.exit(main())
