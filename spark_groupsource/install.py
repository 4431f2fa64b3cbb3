"""How this package is installed, as its texts say it: the one place to change when an index has the package.

Until then no text may name it to pip: whoever registered the name first would be installed.
"""

from __future__ import annotations

SOURCE = "."
"""What pip is given."""

WHERE = " in a clone of the project"
"""Where that works. Once an index has the package, `SOURCE` is its name there, and this is empty."""


def with_extra(name: str) -> str:
    """Return the command that installs the package with one of its extras."""
    return f"pip install '{SOURCE}[{name}]'{WHERE}"
