"""The checkpoint of a query with three sources, as Spark writes it."""

from __future__ import annotations

import json
from pathlib import Path

STREAM, OTHER = "0123456789abcdef", "fedcba9876543210"


class Checkpoint:
    """A checkpoint as Spark writes it, with a source of this package between two others."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def log(self, batch: int, plan: int, stream: str = STREAM, version: str = "v1") -> None:
        """Write a micro-batch to the offset log."""
        offset = {"v": 1, "stream": stream, "plan": plan, "group": "billing", "ranges": {}}
        named = ("a:", "b:", "c:") if version == "v2" else ("", "", "")
        lines = [version, "{}", f"{named[0]}-", f"{named[1]}{json.dumps(offset)}", f'{named[2]}{{"orders":{{"0":7}}}}']
        self._write("offsets", batch, "\n".join(lines))

    def commit(self, batch: int) -> None:
        """Write it to the commit log."""
        self._write("commits", batch, 'v1\n{"nextBatchWatermarkMs":0}')

    def read(self, batch: int) -> str:
        """Return the text of a micro-batch in the offset log."""
        return (self.folder / "offsets" / str(batch)).read_text()

    def replace(self, batch: int, text: str) -> None:
        """Have this text in the place of a micro-batch in the offset log."""
        self._write("offsets", batch, text)

    def _write(self, log: str, batch: int, text: str) -> None:
        (self.folder / log).mkdir(parents=True, exist_ok=True)
        (self.folder / log / str(batch)).write_text(text)
        (self.folder / log / f".{batch}.crc").write_text("")
