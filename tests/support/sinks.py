"""What Spark's file sink has committed."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from devtools.demo.count import committed_files


def written(folder: Path) -> list[tuple[int, int]]:
    """Return (partition, offset) of every row in the sink, sorted; duplicates are kept."""
    found: list[tuple[int, int]] = []
    for file in committed_files(folder):
        table = pq.read_table(file, columns=["partition", "offset"], partitioning=None)
        found += zip(table.column("partition").to_pylist(), table.column("offset").to_pylist(), strict=True)
    return sorted(found)
