"""A run's append-only log of events: one line of JSON each, written by every process that takes part."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Event = Mapping[str, Any]


class EventLog:
    """Appends events, and reads those since the last read. Pickles: it holds only the path and a position."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen = 0
        self._by_kind: dict[str, list[Event]] = {}

    def append(self, event: str, **more: Any) -> None:
        """Append one event, with the time in seconds since the epoch and the id of this process."""
        line = json.dumps({"at": time.time(), "event": event, "pid": os.getpid(), **more}) + "\n"
        # One write to a file that is open for appending: lines of several processes do not mix.
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)

    def look(self, kind: str) -> list[Event]:
        """Return all events of one kind so far."""
        if self.path.exists():
            with self.path.open("rb") as log:
                log.seek(self._seen)
                # A line that is being written has no end yet.
                new, _, _ = log.read().rpartition(b"\n")
            if new:
                self._seen += len(new) + 1
                for line in new.splitlines():
                    event = json.loads(line)
                    self._by_kind.setdefault(event["event"], []).append(event)
        return self._by_kind.get(kind, [])
