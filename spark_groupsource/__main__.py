"""The script `groupkafka`, and `python -m spark_groupsource`: the command line, if what it needs is installed."""

from __future__ import annotations

import sys
from importlib.util import find_spec

NEEDED = ("click", "rich")
"""What the extra `cli` installs: the source itself does without."""


def main() -> None:
    """Run the command line, or say on stderr what is missing, with exit code 1."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        sys.exit(f"groupkafka needs {' and '.join(missing)}: pip install 'spark-groupsource[cli]'")
    from spark_groupsource.cli.main import main as commands

    commands()


if __name__ == "__main__":
    main()
