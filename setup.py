"""The native reader's C, and the name of a wheel that has it; everything else is in pyproject.toml.

Optional: without a compiler the package installs all the same, and reads with pure Python.

`ctypes` loads the library, which needs no Python API. So one file name and one wheel serve every Python of a platform.
"""

import os

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext


class BuildLibrary(build_ext):
    """The C as `_native.so`, in a source tree as in a wheel: the file that fetch/native_api.py loads."""

    def get_ext_filename(self, fullname: str) -> str:
        """Return the path without the tag of a Python that setuptools adds."""
        return os.path.join(*fullname.split(".")) + ".so"


class BuildWheel(bdist_wheel):
    """A wheel for one platform and every Python, or for every platform if the C was not compiled."""

    def run(self) -> None:
        """Compile first: the result decides which kind of wheel this is."""
        self.run_command("build")
        if not any(map(os.path.exists, self.get_finalized_command("build_ext").get_outputs())):
            self.distribution.ext_modules = []
            self.root_is_pure = True
        super().run()

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tags for Python, ABI and platform."""
        *_, platform = super().get_tag()
        return "py3", "none", platform


setup(
    ext_modules=[Extension("spark_groupsource.fetch._native", ["spark_groupsource/fetch/_native.c"], optional=True)],
    cmdclass={"build_ext": BuildLibrary, "bdist_wheel": BuildWheel},
)
