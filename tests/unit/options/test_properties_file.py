"""Properties files: what is read of them as by Java, what an error shows, and which variables are put in."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_groupsource import read_properties
from spark_groupsource.errors import OptionError
from spark_groupsource.options.model import Options
from spark_groupsource.options.properties_file import parse_properties
from tests.support.options import BASE


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("${env:DB-PASS}", r"write \${env:NAME}"),
        ("${ENV:ZONE}", r"write \${env:NAME}"),
        ("a${env:ZONE", r"write \${env:NAME}"),
        ("before-${env:NO_SUCH_VARIABLE}", "NO_SUCH_VARIABLE, which is not set"),
    ],
)
def test_a_properties_file_does_not_take_a_reference_to_no_variable_for_a_password(
    value: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZONE", "${env:of-no-name}")
    file = tmp_path / "orders.properties"
    file.write_text(f"kafka.sasl.username = ${{env:ZONE}}\nkafka.sasl.password = {value}\n")
    with pytest.raises(OptionError, match=f"^kafka.sasl.password refers to .*{said}") as caught:
        read_properties(file)
    assert "before" not in str(caught.value)


def test_a_properties_file_joins_the_halves_of_a_character_as_java_writes_them(tmp_path: Path) -> None:
    file = tmp_path / "orders.properties"
    file.write_text("kafka.sasl.password = tea\\ud83d\\ude00\n")
    assert read_properties(file) == {"kafka.sasl.password": "tea\N{GRINNING FACE}"}


def test_the_further_lines_of_a_key_or_a_password_are_not_shown(tmp_path: Path) -> None:
    begin = "kafka.ssl.keystore.key = -----BEGIN PRIVATE KEY-----"
    line = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgevZzL1gdAFr88hb2"
    file = tmp_path / "orders.properties"
    for rest in ("hunter2", "hunter2 \t", line, "# a comment\n" + line):
        file.write_text(f"{begin}\n\n{rest}")
        with pytest.raises(OptionError, match=rf"orders\.properties, line {3 + rest.count(chr(10))}: there is no `=`") as raised:
            read_properties(file)
        assert rest.strip() not in str(raised.value)
    # The last line of what is encoded may end with `=`.
    file.write_text("\n".join([begin, line + "==", f"kafka.{line}=", "k3JfQ9aZx1=="]))
    with pytest.raises(OptionError) as raised:
        Options.parse({**BASE, **read_properties(file)})
    assert "a name that is not shown" in str(raised.value)
    assert line[:20].lower() not in str(raised.value).lower()
    assert "k3jf" not in str(raised.value).lower()


def test_a_properties_file_leaves_the_rack_to_the_executors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZONE", "of the driver")
    file = tmp_path / "orders.properties"
    file.write_text("kafka.client.rack = ${env:ZONE}\nKafka.Client.Rack = ${env:NO_SUCH_VARIABLE}\nsubscribe = ${env:ZONE}\n")
    assert read_properties(file) == {
        "kafka.client.rack": "${env:ZONE}",
        "Kafka.Client.Rack": "${env:NO_SUCH_VARIABLE}",
        "subscribe": "of the driver",
    }


def test_properties_are_read_as_java_reads_them() -> None:
    text = "a=1\n b : two words \n\n! no\nc 3\nd\\:e=x\\=y\nf=l\\\n   m\\u0041\ng=\nh=C:\\\\keys\ni=\u00a0\u0085x\u2028\f\r\nj=2"
    assert parse_properties(text, "client.properties") == {
        "a": "1",
        "b": "two words ",
        "c": "3",
        "d:e": "x=y",
        "f": "lmA",
        "g": "",
        "h": "C:\\keys",
        "i": "\u00a0\u0085x\u2028\f",
        "j": "2",
    }
