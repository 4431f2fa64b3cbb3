"""The entry point of `groupkafka` and of `python -m spark_groupsource`."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from spark_groupsource.install import with_extra

NEEDED = ("click", "rich")
"""The packages in the `cli` extra. The source itself does not need them."""


def main() -> None:
    """Run the command line. If a package is missing, print its name on stderr and exit with code 1."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        sys.exit(f"groupkafka needs {' and '.join(missing)}: {with_extra('cli')}")
    from spark_groupsource.cli.main import main as commands

    commands()


if __name__ == "__main__":
    main()
