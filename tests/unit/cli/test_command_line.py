"""`groupkafka`: its commands are found, and a look at its help does not wait for what they need."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

from spark_groupsource.cli.main import COMMANDS, main

HEAVY = ("confluent_kafka", "pyarrow", "pydantic", "pyspark", "rich")


def test_the_help_imports_nothing_that_takes_long() -> None:
    look = (
        "import sys\n"
        "from click.testing import CliRunner\n"
        "from spark_groupsource.cli.main import main\n"
        "print(CliRunner().invoke(main, ['--help']).output)\n"
        f"print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", look], check=True, capture_output=True, text=True).stdout
    assert all(f"  {name} " in shown for name in COMMANDS)
    assert shown.endswith("[]\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_is_found_by_its_name(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert command.name == name
