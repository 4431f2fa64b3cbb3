"""Packages of Debian, for this processor or another one, unpacked into a folder: nothing is installed on this machine."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
"""Debian's names of processors."""


def unpack(folder: Path, machine: str, *packages: str) -> Path:
    """Return a folder with the files of these packages and of all that they need. Skip the test if apt has none."""
    if shutil.which("apt-get") is None:
        pytest.skip("only Debian's apt-get has the programs to run the wheel with")
    root, state = folder / "root", folder / "state"
    for needed in (root, state / "lists" / "partial", state / "cache" / "archives" / "partial"):
        needed.mkdir(parents=True)
    (state / "status").touch()
    options = {
        "APT::Architecture": MACHINES[machine],
        "APT::Architectures": MACHINES[machine],
        "APT::Install-Recommends": "false",
        "Debug::NoLocking": "true",
        "Dir::Cache": state / "cache",
        "Dir::State": state,
        "Dir::State::lists": state / "lists",
        "Dir::State::status": state / "status",
    }
    apt = ["apt-get", "--quiet=2", "--yes", *(f"--option={name}={value}" for name, value in options.items())]
    for step in (["update"], ["install", "--download-only", *packages]):
        done = subprocess.run([*apt, *step], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"apt has no {' '.join(packages)} for {machine}: {done.stderr}")
    for archive in (state / "cache" / "archives").glob("*.deb"):
        subprocess.run(["dpkg-deb", "--extract", str(archive), str(root)], check=True)
    return root


def emulator(machine: str, root: Path) -> list[str]:
    """Return the words before a command for another processor, whose files are in a folder. Skip the test without qemu."""
    found = shutil.which(f"qemu-{machine}-static") or shutil.which(f"qemu-{machine}")
    if found is None:
        pytest.skip(f"there is no qemu-{machine}-static: apt install qemu-user-static")
    return [found, "-L", str(root)]
