"""The native reader's C, which needs no Python API; everything else is in pyproject.toml.

Optional: without a compiler the package installs all the same, and reads with pure Python.
"""

from setuptools import Extension, setup

setup(ext_modules=[Extension("spark_groupsource.fetch._native", ["spark_groupsource/fetch/_native.c"], optional=True)])
