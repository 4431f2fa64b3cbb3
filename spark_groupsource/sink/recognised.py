"""Recognises what the sink keeps beside the offsets of its groups, for commands that look at any group."""

from __future__ import annotations

import json
from typing import Any, Literal

from spark_groupsource.errors import TokenUnreadable
from spark_groupsource.sink.names import is_query
from spark_groupsource.sink.token import Committed, Mark, mark_in

Kind = Literal["token", "mark"]

_KINDS: tuple[tuple[set[str], Kind], ...] = (({"rows", "sum"}, "token"), ({"tasks", "rows"}, "token"), ({"open"}, "mark"))
"""The fields by which a task's token, the driver's, and the mark of an open transaction are known, beside `v` and `run`."""


def kind_of(metadata: str | None) -> Kind | None:
    """Return what of the sink a committed offset with this metadata is. `None`: it may be the position of a reader."""
    fields = _fields(metadata)
    if type(fields.get("v")) is not int or not isinstance(fields.get("run"), str):
        return None
    return next((kind for names, kind in _KINDS if names <= fields.keys()), None)


def own_mark(metadata: str | None) -> Mark | None:
    """Return a mark that stands in any group; `None` if something in it is not what the sink writes.

    The query's id is believed as it stands there, so this is for people to read, and for no rule.
    """
    query = _fields(metadata).get("q")
    if not isinstance(query, str) or not is_query(query):
        return None
    try:
        return mark_in([Committed(1, metadata or "")], "", query)
    except TokenUnreadable:
        return None


def _fields(metadata: str | None) -> dict[str, Any]:
    try:
        fields = json.loads(metadata or "")
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}
