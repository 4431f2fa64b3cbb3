"""Makes a SPARK_HOME with which Spark's Python processes need half of the CPU time to start.

pip's PySpark has a second copy of its Python code in `python/lib/pyspark.zip`. Spark puts that copy first on the path of its
Python processes, and each process compiles it again, because code from a zip file cannot be cached.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pyspark


def spark_home() -> Path:
    """Return a folder for SPARK_HOME.

    In a virtual environment, it is the `spark-home` folder there, with links to all of PySpark except `python/`. Elsewhere, it is
    PySpark's own folder. Several processes may call this at the same time.
    """
    installed = Path(pyspark.__file__).parent
    if sys.prefix == sys.base_prefix:
        return installed
    home = Path(sys.prefix) / "spark-home"
    home.mkdir(exist_ok=True)
    for entry in installed.iterdir():
        link = home / entry.name
        if entry.name != "python" and not (link.is_symlink() and link.readlink() == entry):
            with tempfile.TemporaryDirectory(dir=home) as folder:
                new = Path(folder) / entry.name
                new.symlink_to(entry)
                new.replace(link)
    return home
