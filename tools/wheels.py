"""`make wheels`: builds the sdist, a wheel with the C code for each platform, and a wheel without it for all others, in dist/.

The C compiler of zig, from PyPI, compiles for every platform on one machine. A wheel is kept only if its library passes a check.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.matrix import PROJECT

DIST = PROJECT / "dist"
LIBRARY = "spark_groupsource/native/_native.so"


@dataclass(frozen=True)
class Platform:
    """A platform that has its own wheel."""

    tag: str
    """The wheel's tag, with the oldest C library or macOS version on which it runs."""
    target: str
    """zig's name for the platform. The processor is the oldest of its kind."""
    machine: str
    """LIEF's name for the processor."""
    linked_to: str
    """The only library that the C code needs, or an empty text."""
    link_flags: str = ""

    @property
    def environment(self) -> Mapping[str, str]:
        """The compiler and its flags, which are those of most builds of Python, without debug information."""
        compiler = f"{sys.executable} -m ziglang cc -target {self.target}"
        flags = "-O3 -fwrapv -DNDEBUG -Wall -g0"
        return {"CC": compiler, "LDSHARED": f"{compiler} -shared -s {self.link_flags}", "CFLAGS": flags}


GLIBC = "libc.so.6"
MACOS = "/usr/lib/libSystem.B.dylib"
# Do not link to musl, because zig and the distributions have different names for it. Python has already loaded it.
MUSL = ("", "-nostdlib")
PLATFORMS = (
    Platform("manylinux_2_17_x86_64", "x86_64-linux-gnu.2.17", "X86_64", GLIBC),
    Platform("manylinux_2_17_aarch64", "aarch64-linux-gnu.2.17", "AARCH64", GLIBC),
    Platform("musllinux_1_2_x86_64", "x86_64-linux-musl", "X86_64", *MUSL),
    Platform("musllinux_1_2_aarch64", "aarch64-linux-musl", "AARCH64", *MUSL),
    Platform("macosx_11_0_x86_64", "x86_64-macos.11.0", "X86_64", MACOS),
    Platform("macosx_11_0_arm64", "aarch64-macos.11.0", "ARM64", MACOS),
)


def main() -> int:
    """Build, check, and print one line for each file."""
    for file in build(DIST):
        print(f"{file.stat().st_size:>8} {file.relative_to(PROJECT)}")
    return 0


def build(into: Path) -> list[Path]:
    """Build everything into a folder, which is emptied first, with the wheels from the sdist."""
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir()
    with tempfile.TemporaryDirectory(prefix="groupsource-wheels-") as folder:
        sdist = build_sdist(Path(folder), into)
        built = [sdist]
        # A wheel that fails its check is not put into the folder.
        unchecked = Path(folder) / "unchecked"
        unchecked.mkdir()
        for platform in PLATFORMS:
            source = unpacked(sdist, Path(folder) / platform.tag)
            wheel = run_build("wheel", source, unchecked, platform.environment, f"--plat-name={platform.tag}")
            check(wheel, platform)
            built.append(Path(shutil.move(wheel, into)))
        pure = run_build("wheel", unpacked(sdist, Path(folder) / "any"), unchecked, {"CC": "false"})
        assert pure.name.endswith("-py3-none-any.whl"), pure
        assert LIBRARY not in zipfile.ZipFile(pure).namelist()
        built.append(Path(shutil.move(pure, into)))
    return built


def build_sdist(folder: Path, into: Path) -> Path:
    """Build the sdist from the files in git, so that it contains no other files from this machine."""
    source = folder / "source"
    for name in git("ls-files", "-z").rstrip("\0").split("\0"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PROJECT / name, source / name)
    made = run_build("sdist", source, folder, {})
    return repacked(made, into / made.name)


def repacked(made: Path, file: Path) -> Path:
    """Rewrite an sdist with the commit's time and without an owner, so that every build produces the same file."""
    with (
        tarfile.open(made) as old,
        file.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=epoch()) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old, key=lambda one: one.name):
            member.pax_headers = {}
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch(), 0, 0, "", ""
            new.addfile(member, old.extractfile(member))
    return file


def unpacked(sdist: Path, folder: Path) -> Path:
    """Unpack an sdist into a folder, and return the folder in it."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (source,) = folder.iterdir()
    return source


def run_build(kind: str, source: Path, into: Path, environment: Mapping[str, str], *options: str) -> Path:
    """Run `python -m build` in this environment, and return the new file."""
    before = set(into.iterdir())
    argv = [sys.executable, "-m", "build", "--no-isolation", f"--{kind}", "--outdir", str(into), str(source)]
    done = subprocess.run(
        [*argv, *(f"--config-setting=--build-option={option}" for option in options)],
        env={**os.environ, **environment, "SOURCE_DATE_EPOCH": str(epoch())},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(done.stdout)
    (built,) = {file for file in into.iterdir() if file.is_file()} - before
    return built


def epoch() -> int:
    """Return the timestamp for all files, in seconds since 1970: SOURCE_DATE_EPOCH, or the time of the last commit."""
    return int(os.environ.get("SOURCE_DATE_EPOCH") or git("log", "-1", "--format=%ct"))


def git(*arguments: str) -> str:
    """Return the output of a git command in this project."""
    return subprocess.run(["git", *arguments], cwd=PROJECT, capture_output=True, text=True, check=True).stdout


def check(wheel: Path, platform: Platform) -> None:
    """Check a wheel's tags and library.

    Raises:
        AssertionError: Something is wrong.
    """
    assert wheel.name.endswith(f"-py3-none-{platform.tag}.whl"), wheel
    with tempfile.TemporaryDirectory(prefix="groupsource-wheels-") as folder:
        file = zipfile.ZipFile(wheel).extract(LIBRARY, folder)
        check_library(file, platform)
        if "linux" in platform.tag:
            check_tag(wheel, platform, folder)


def check_library(file: str, platform: Platform) -> None:
    """Check which platform a library is compiled for, which functions it exports, and which libraries it needs."""
    import lief

    lief.logging.disable()
    library: Any = lief.parse(file)
    header = library.header
    machine = header.cpu_type if isinstance(library, lief.MachO.Binary) else header.machine_type
    assert machine.name == platform.machine, (platform, machine)
    # macOS puts an underscore before each name. zig's linker adds two names.
    exported = {function.name.removeprefix("_") for function in library.exported_functions}
    assert exported - {"_mh_dylib_header", "__dso_handle"} == exports(), (platform, exported)
    if isinstance(library, lief.MachO.Binary):
        # The first one is the library's own name.
        needed = [str(one.name) for one in library.libraries][1:]
        assert library.build_version.minos[:2] == [int(part) for part in platform.tag.split("_")[1:3]], platform
        # Apple's processors run only signed code. The linker's own signature is enough.
        assert library.has_code_signature or platform.machine != "ARM64", platform
        assert not library.has_rpath, platform
    else:
        needed = [str(one) for one in library.libraries]
        tags = {entry.tag for entry in library.dynamic_entries}
        assert not tags & {lief.ELF.DynamicEntry.TAG.RPATH, lief.ELF.DynamicEntry.TAG.RUNPATH}, platform
    assert needed == [platform.linked_to] * bool(platform.linked_to), (platform, needed)


def exports() -> set[str]:
    """Return the functions that the C sources export."""
    text = "".join(file.read_text(encoding="utf-8") for file in (PROJECT / LIBRARY).parent.glob("*.c"))
    found = set(re.findall(r"^EXPORT .*?\b(gs_\w+)\(", text, re.MULTILINE))
    assert found
    return found


def check_tag(wheel: Path, platform: Platform, empty: str) -> None:
    """Check with auditwheel that a library runs on every platform of its tag. Libraries of this machine are ignored."""
    show = [sys.executable, "-m", "auditwheel", "show", "--json", "--ldpaths", empty, str(wheel)]
    done = subprocess.run(show, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["overall_tag"] == platform.tag, done.stdout


if __name__ == "__main__":
    sys.exit(main())
