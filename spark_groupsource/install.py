"""The installation advice in this package's texts: the one place to change once a package index has the package.

Until then no text may give the name to pip, which would install the package of anybody who registers the name first.
"""

from __future__ import annotations

SOURCE = "."
"""The argument for `pip install`."""

WHERE = " in a clone of the project"
"""Where to run it. Once an index has the package, `SOURCE` is its name there, and this is empty."""


def with_extra(name: str) -> str:
    """Return the command that installs the package with one of its extras."""
    return f"pip install '{SOURCE}[{name}]'{WHERE}"
