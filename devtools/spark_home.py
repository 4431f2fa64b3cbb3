"""A home of Spark whose Python is compiled once: each Python process that Spark starts takes half of the processor's time.

pip's PySpark has its Python a second time, in `python/lib/pyspark.zip`. Spark puts that first on the path of its Python
processes, and what comes from a zip is compiled again by each of them, since nothing of it can be cached.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import pyspark


def spark_home() -> Path:
    """Return a folder for SPARK_HOME, beside the PySpark of this environment: all of that, by links, but the zip.

    Spark's Python then comes from where it is installed. Several processes may ask at the same time.
    """
    home = Path(sys.prefix) / "spark-home"
    home.mkdir(exist_ok=True)
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "python":
            with contextlib.suppress(FileExistsError):
                (home / entry.name).symlink_to(entry)
    return home
