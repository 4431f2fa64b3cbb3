"""Copies objects from which a history may continue in several ways."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def twin_of(original: T) -> T:
    """Return a shallow copy like `copy.copy`, but faster. The object must have only attributes."""
    twin = object.__new__(type(original))
    vars(twin).update(vars(original))
    return twin


CHANGED_IN_PLACE = (set, dict)
"""The types of attributes of which a copy is needed."""


def copy_of(original: T) -> T:
    """Return a copy with its own sets and mappings."""
    twin = twin_of(original)
    for attribute, value in vars(original).items():
        if isinstance(value, CHANGED_IN_PLACE):
            setattr(twin, attribute, value.copy())
    return twin
