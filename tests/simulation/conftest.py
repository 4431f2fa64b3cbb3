"""Makes histories fast."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _quick() -> Iterator[None]:
    """Turn off logging, and collect garbage rarely, because Python would traverse the millions of objects of a search."""
    log_level, threshold = logging.root.manager.disable, gc.get_threshold()
    logging.disable(logging.CRITICAL)
    gc.set_threshold(5_000_000, *threshold[1:])
    yield
    logging.disable(log_level)
    gc.set_threshold(*threshold)
    gc.collect()
