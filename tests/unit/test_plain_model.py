"""No plugin of pydantic sees a model of this package, and the models of others keep theirs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PLUGIN = """
class Plugin:
    def new_schema_validator(self, schema, schema_type, *more):
        print(schema_type.__name__)
        return None, None, None

plugin = Plugin()
"""

PROGRAM = """
import os
from pydantic import BaseModel
{first}
from spark_groupsource.options.model import Options
from spark_groupsource.options.sink_model import SinkOptions

class Later(BaseModel):
    password: str

Options.parse({{"kafka.bootstrap.servers": "broker:9092", "kafka.group.id": "g", "subscribe": "t"}})
print(os.environ.get("PYDANTIC_DISABLE_PLUGINS"))
"""


def seen(tmp_path: Path, first: str = "", **environment: str) -> list[str]:
    """What a program prints: the models that an installed plugin sees, then the variable that disables plugins."""
    (tmp_path / "seeing.py").write_text(PLUGIN)
    installed = tmp_path / "seeing-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: seeing\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text("[pydantic]\nseeing = seeing:plugin\n")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(first=first)],
        env={**os.environ, "PYTHONPATH": str(tmp_path), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_a_plugin_sees_the_models_of_others_alone(tmp_path: Path) -> None:
    assert seen(tmp_path) == ["Later", "None"]


def test_also_if_it_was_loaded_before(tmp_path: Path) -> None:
    assert seen(tmp_path, "class Earlier(BaseModel): pass") == ["Earlier", "Later", "None"]


def test_what_the_user_has_set_stays(tmp_path: Path) -> None:
    assert seen(tmp_path, PYDANTIC_DISABLE_PLUGINS="others") == ["Later", "others"]
