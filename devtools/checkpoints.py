"""Checkpoints on a local disk that start no processes.

Spark writes them through Hadoop's FileContext, which starts `chmod` and `readlink` for each file: two fifths of what a small
micro-batch takes of the processor. Its FileSystem does not. They differ where two drivers share a checkpoint.
"""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import pyspark


def without_processes() -> tuple[str, str]:
    """Return the name and the value of the setting of Spark for checkpoints that one driver at a time writes."""
    (jar,) = Path(pyspark.__file__).parent.glob("jars/spark-sql_2.13-*.jar")
    with ZipFile(jar) as classes:  # the package of the class is another one in each series of Spark
        name = next(name for name in classes.namelist() if name.endswith("/FileSystemBasedCheckpointFileManager.class"))
    return "spark.sql.streaming.checkpointFileManagerClass", name.removesuffix(".class").replace("/", ".")
