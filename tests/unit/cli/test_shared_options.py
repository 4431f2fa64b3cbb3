"""The options that several commands have."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from spark_groupsource.cli.main import main
from spark_groupsource.cli.shared_options import client_settings


@pytest.mark.parametrize(("group", "said"), [(" ", "the name is empty"), ("\udcff", "the name is not valid UTF-8")])
def test_a_name_that_no_group_has_is_refused(group: str, said: str) -> None:
    refused = CliRunner().invoke(main, ["describe", "--bootstrap-server", "127.0.0.1:1", "--group", group])
    assert refused.exit_code == 2
    assert said in refused.output


def test_a_file_of_settings_is_added_and_the_servers_are_those_of_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("client.id=mine\nbootstrap.servers=other:9092\nsecurity.protocol=SSL\n")
    alone, given = client_settings("localhost:9092", None), client_settings("localhost:9092", file)
    assert (alone["client.id"], given["client.id"]) == ("groupkafka-tool", "mine")
    assert given["bootstrap.servers"] == "localhost:9092"
    assert given["security.protocol"].lower() == "ssl"
