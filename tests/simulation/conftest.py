"""What makes histories quick."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _quick() -> Iterator[None]:
    """Write no log lines, and look for unused cycles seldom: the searches keep millions of objects, which Python would walk."""
    log_level, threshold = logging.root.manager.disable, gc.get_threshold()
    logging.disable(logging.CRITICAL)
    gc.set_threshold(5_000_000, *threshold[1:])
    yield
    logging.disable(log_level)
    gc.set_threshold(*threshold)
    gc.collect()
