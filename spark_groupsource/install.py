"""Defines how texts tell users to install the package, in one place to change once a package index has it.

Until then no text may give the name to pip, which would install the package of anyone who registers the name first.
"""

from __future__ import annotations

SOURCE = "."
"""The argument for `pip install`."""

WHERE = " in a clone of the project"
"""Where to run the command. Once an index has the package, `SOURCE` is its name there, and this is empty."""


def with_extra(name: str) -> str:
    """Return the command that installs the package with one of its extras."""
    return f"pip install '{SOURCE}[{name}]'{WHERE}"
