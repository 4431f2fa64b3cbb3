"""Checkpoints on a local disk that start no processes.

Spark writes them through Hadoop's FileContext, which starts `chmod` and `readlink` for each file: two fifths of what a small
micro-batch takes of the processor. Hadoop's FileSystem does not. But it looks whether a file is there before it renames another
to that name. So two drivers on one checkpoint may both write a micro-batch, where FileContext refuses the second one.
"""

from __future__ import annotations

import os
from pathlib import Path
from zipfile import ZipFile


def without_processes() -> tuple[str, str]:
    """Return the name and the value of the setting of Spark for checkpoints of one driver each. SPARK_HOME has to be set."""
    (jar,) = Path(os.environ["SPARK_HOME"]).glob("jars/spark-sql_2.13-*.jar")
    with ZipFile(jar) as classes:  # the package of the class is another one in each series of Spark
        name = next(name for name in classes.namelist() if name.endswith("/FileSystemBasedCheckpointFileManager.class"))
    return "spark.sql.streaming.checkpointFileManagerClass", name.removesuffix(".class").replace("/", ".")
