"""Checks that every record was counted once. Only rows that the queries' sinks have committed count.

The producer writes the numbers from 0 on, each once. The output of a file sink is what its log, `_spark_metadata`, lists. An
interrupted micro-batch's files are in the same folder, but do not count.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq

from spark_groupsource.errors import GroupKafkaError

_LOG_FILE = re.compile(r"(?P<batch>[0-9]+)(?P<compact>\.compact)?")
_COLUMNS = ["number", "partition"]


@dataclass(frozen=True)
class Count:
    """The result. `rows` is by query and partition. `lost` and `doubled` have the records' numbers."""

    produced: int
    rows: Mapping[tuple[str, int], int]
    lost: tuple[int, ...]
    doubled: tuple[int, ...]
    unknown: tuple[int, ...]
    """Numbers that were read but never produced."""

    @property
    def read(self) -> int:
        """The number of rows in all outputs."""
        return sum(self.rows.values())

    @property
    def exactly_once(self) -> bool:
        """Whether every produced record was read exactly once, and nothing else was read."""
        return not self.lost and not self.doubled and not self.unknown and self.read == self.produced


def count_records(produced: int, outputs: Mapping[str, Path]) -> Count:
    """Count the numbers 0 to `produced` (exclusive) in the outputs of the queries.

    Args:
        produced: the number of records that the broker has.
        outputs: the folder of each query's file sink, by the query's name.

    Raises:
        GroupKafkaError: The format of a sink's log is not known.
    """
    seen: Counter[int] = Counter()
    rows: Counter[tuple[str, int]] = Counter()
    for name, output in outputs.items():
        for file in committed_files(output):
            table: pa.Table = pq.read_table(file, columns=_COLUMNS, partitioning=None)
            seen.update(table.column("number").to_pylist())
            rows.update((name, partition) for partition in table.column("partition").to_pylist())
    return Count(
        produced=produced,
        rows=dict(sorted(rows.items())),
        lost=tuple(number for number in range(produced) if number not in seen),
        doubled=tuple(sorted(number for number, times in seen.items() if times > 1)),
        unknown=tuple(sorted(number for number in seen if not 0 <= number < produced)),
    )


def committed_files(output: Path) -> list[Path]:
    """Return the files that a file sink has committed; none if it has written nothing yet.

    The log is read as Spark's `FileStreamSinkLog` reads it: the newest compact file has all earlier entries.
    """
    log = output / "_spark_metadata"
    batches: dict[int, Path] = {}
    newest_compact = -1
    for file in log.iterdir() if log.is_dir() else ():
        match = _LOG_FILE.fullmatch(file.name)
        if match is None:
            continue
        batch = int(match["batch"])
        batches[batch] = file
        if match["compact"]:
            newest_compact = max(newest_compact, batch)
    return [path for batch in sorted(batches) if batch >= newest_compact for path in _listed(batches[batch])]


def _listed(file: Path) -> Iterator[Path]:
    version, *entries = file.read_text(encoding="utf-8").splitlines()
    if version != "v1":
        raise GroupKafkaError(f"{file} is a file sink's log of version {version!r}, but the demo can only read v1.")
    for entry in entries:
        yield Path(unquote(urlparse(json.loads(entry)["path"]).path))
