"""Makes folders of downloaded files next to the cache of the development broker's jars."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from devtools.broker.jars import default_cache


def downloaded(name: str, download: Callable[[Path], Path]) -> Path:
    """Return a folder in the cache. The first run creates it, and an interrupted run leaves nothing behind.

    Args:
        name: The folder's name.
        download: gets a temporary folder, and returns the folder in it that will be kept.
    """
    target = default_cache().parent / name
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        made = download(Path(folder))
        try:
            made.rename(target)
        except OSError:
            if not target.is_dir():  # another process was faster
                raise
    return target
