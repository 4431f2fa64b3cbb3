"""The native reader's C, the name of a wheel that has it, and the module by which Spark finds the source.

The C is optional: without a compiler the package installs all the same, and reads with pure Python. `ctypes` loads the library,
which needs no Python API. So one file name and one wheel serve every Python of a platform.

Everything else is in pyproject.toml.
"""

import os
from distutils.command.install_data import install_data  # setuptools' own

from setuptools import Distribution, Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext


class BuildLibrary(build_ext):
    """The C as `_native.so`, in a source tree as in a wheel: the file that native/libraries.py loads."""

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


class InstallTopLevel(install_data):
    """Places `pyspark_groupkafka` beside the package, also in an editable install.

    Spark lists the folders of the path. So it finds no module that only the import hook of an editable install knows.
    """

    def finalize_options(self) -> None:
        """Install where modules are, not below the environment's folder."""
        self.set_undefined_options("install", ("install_lib", "install_dir"), ("root", "root"), ("force", "force"))


class WithData(Distribution):
    """Has its data files in an editable install too: there setuptools asks for `has_data`, which no distribution has."""

    has_data = Distribution.has_data_files


setup(
    distclass=WithData,
    cmdclass={"build_ext": BuildLibrary, "bdist_wheel": BuildWheel, "install_data": InstallTopLevel},
    data_files=[("", ["spark_groupsource/top_level/pyspark_groupkafka.py"])],
    ext_modules=[
        Extension(
            "spark_groupsource.native._native",
            ["spark_groupsource/native/_intake.c", "spark_groupsource/native/_outlet.c"],
            depends=["spark_groupsource/native/_native.h"],
            optional=True,
        )
    ],
)
