"""Defines the installation command that messages show, so that only this module changes once a package index has the package.

Until then, no message may pass the package's name to pip, because anyone could register that name first.
"""

from __future__ import annotations

SOURCE = "."
"""The argument for `pip install`."""

WHERE = " in a clone of the project"
"""Where to run the command. Once an index has the package, set `SOURCE` to its name there and this to an empty string."""


def with_extra(name: str) -> str:
    """Return the command that installs this package with one of its extras."""
    return f"pip install '{SOURCE}[{name}]'{WHERE}"
