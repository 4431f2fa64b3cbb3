"""Recognises what the sink keeps beside the offsets of its groups, for commands that look at any group."""

from __future__ import annotations

import json

_KINDS = ({"rows", "sum"}, {"tasks", "rows"}, {"open"})
"""The fields by which a task's token, the driver's, and the mark of an open transaction are known, beside `v` and `run`."""


def is_token(metadata: str | None) -> bool:
    """Return whether a committed offset with this metadata is the sink's: it is no position of a reader."""
    try:
        fields = json.loads(metadata or "")
    except (ValueError, RecursionError):
        return False
    return (
        isinstance(fields, dict)
        and type(fields.get("v")) is int
        and isinstance(fields.get("run"), str)
        and any(kind <= fields.keys() for kind in _KINDS)
    )
