"""Makes Spark write checkpoints on a local disk without starting processes.

By default, Spark uses Hadoop's FileContext, which starts `chmod` and `readlink` for each file. That takes two fifths of the CPU
time of a small micro-batch. Hadoop's FileSystem starts no process, but it renames a file only after a separate check that the new
name is free. So two drivers that use one checkpoint may both write a micro-batch, while FileContext rejects the second one.
"""

from __future__ import annotations

import os
from pathlib import Path
from zipfile import ZipFile


def without_processes() -> tuple[str, str]:
    """Return the name and value of the Spark setting. Use it only if each checkpoint has one driver. SPARK_HOME must be set."""
    (jar,) = Path(os.environ["SPARK_HOME"]).glob("jars/spark-sql_2.13-*.jar")
    with ZipFile(jar) as classes:  # the package of the class differs between series of Spark
        name = next(name for name in classes.namelist() if name.endswith("/FileSystemBasedCheckpointFileManager.class"))
    return "spark.sql.streaming.checkpointFileManagerClass", name.removesuffix(".class").replace("/", ".")
