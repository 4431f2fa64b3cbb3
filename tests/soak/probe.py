"""A look inside a runner, to find what grows: `make soak SOAK=--probe`. Only tests import it.

Each runner writes a line of JSON every half minute. It has the objects that the garbage collector tracks by type, the blocks
that Python has allocated, and what malloc has. It also has the sizes of the cycle's own collections.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Sized
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructType

from spark_groupsource.options.model import Options
from spark_groupsource.query.cycle import Cycle
from spark_groupsource.spark.datasource import GroupKafkaDataSource
from spark_groupsource.spark.version_readers import AdmissionControlReader

FORMAT = "groupkafka_probed"
PROBE = {"format": FORMAT, "register": "tests.soak.probe:ProbedDataSource"}
EVERY_S = 30.0
MOST_TYPES = 40
LIBC = ctypes.CDLL(None)
"""Loaded once: each call would make a class, which stays until the garbage collector runs."""


class ProbedDataSource(GroupKafkaDataSource):
    """`groupkafka`, whose runner is looked into."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamReader(self, schema: StructType) -> AdmissionControlReader:  # noqa: ARG002, N802
        return ProbedReader(Options.parse(self.options))


class ProbedReader(AdmissionControlReader):
    """Starts the probe in the runner, and nowhere else."""

    def _running(self) -> Cycle:
        begins = self._cycle is None
        cycle = super()._running()
        if begins:
            path = Path(f"soak-probe-{os.getpid()}.jsonl").absolute()
            threading.Thread(target=_probe, args=(cycle, path), name="soak-probe", daemon=True).start()
        return cycle


def _probe(cycle: Cycle, path: Path) -> None:
    while True:
        with path.open("a", encoding="utf-8") as log:
            log.write(json.dumps(look(cycle)) + "\n")
        time.sleep(EVERY_S)


def look(cycle: Cycle) -> dict[str, Any]:
    """Return what this process holds now."""
    types = Counter(type(one).__name__ for one in gc.get_objects())
    return {
        "at": time.time(),
        "blocks": sys.getallocatedblocks(),
        "collector": {"counts": gc.get_count(), "collections": [one["collections"] for one in gc.get_stats()]},
        "malloc": malloc(),
        "cycle": {name: len(held) for name, held in vars(cycle).items() if isinstance(held, Sized) and not isinstance(held, str)},
        "types": dict(types.most_common(MOST_TYPES)),
    }


def malloc() -> dict[str, int]:
    """Return how many bytes glibc has from the system, and how many of them are free. Empty without glibc."""
    if not hasattr(LIBC, "malloc_info"):
        return {}
    LIBC.open_memstream.restype = ctypes.c_void_p
    text, size = ctypes.c_char_p(), ctypes.c_size_t()
    stream = ctypes.c_void_p(LIBC.open_memstream(ctypes.byref(text), ctypes.byref(size)))
    LIBC.malloc_info(0, stream)
    LIBC.fclose(stream)
    found = ctypes.string_at(text, size.value).decode()
    LIBC.free(text)
    totals = found[found.rindex("</heap>") :]
    sizes = {
        kind: int(number) for kind, number in re.findall(r'<(?:total|system) type="(\w+)"(?: count="\d+")? size="(\d+)"', totals)
    }
    free = sizes.get("fast", 0) + sizes.get("rest", 0)
    system = sizes.get("current", 0) + sizes.get("mmap", 0)
    return {"arenas": found.count("<heap "), "system": system, "free": free, "used": system - free}
