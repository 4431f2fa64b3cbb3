"""Describes the environment that a benchmark's numbers depend on, and writes the results to a file."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import confluent_kafka
import pyarrow as pa
import pyspark


def environment() -> dict[str, Any]:
    """Return a description of the environment that the numbers depend on."""
    return {
        "python": platform.python_version(),
        "pyspark": pyspark.__version__,
        "confluent-kafka": confluent_kafka.__version__,
        "librdkafka": confluent_kafka.libversion()[0],
        "pyarrow": pa.__version__,
        "system": platform.platform(),
        "cpus": os.cpu_count(),
    }


def save(output: Path, results: Mapping[str, Any]) -> None:
    """Write results as JSON, creating the folder if necessary."""
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
