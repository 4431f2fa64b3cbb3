"""Garbage collection in an executor's Python worker.

Spark collects a worker's garbage after every task. With everything that the reader imports, that takes longer than a small task.
"""

from __future__ import annotations

import functools
import gc


@functools.cache
def freeze_imports() -> None:
    """Exclude everything that has been imported by now from garbage collection, once in each process.

    What later tasks leave behind is collected as usual.
    """
    gc.freeze()
