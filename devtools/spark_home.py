"""A home of Spark from which its Python processes start sooner: a runner and a daemon take half of the processor's time.

pip's PySpark has its Python a second time, in `python/lib/pyspark.zip`. Spark puts that first on the path of its Python
processes, and what comes from a zip is compiled again by each of them, since nothing of it can be cached.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pyspark


def spark_home() -> Path:
    """Return a folder for SPARK_HOME.

    In a virtual environment it is `spark-home` there, with links to all of PySpark but its `python/`; elsewhere PySpark's own
    folder. Several processes may ask at the same time.
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
