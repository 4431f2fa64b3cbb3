"""What a benchmark's numbers depend on."""

from __future__ import annotations

import os
import platform
from typing import Any

import confluent_kafka
import pyarrow as pa
import pyspark


def environment() -> dict[str, Any]:
    """Return what the numbers depend on."""
    return {
        "python": platform.python_version(),
        "pyspark": pyspark.__version__,
        "confluent-kafka": confluent_kafka.__version__,
        "librdkafka": confluent_kafka.libversion()[0],
        "pyarrow": pa.__version__,
        "system": platform.platform(),
        "cpus": os.cpu_count(),
    }
