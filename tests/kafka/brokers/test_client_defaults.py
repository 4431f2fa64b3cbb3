"""Defaults in which librdkafka differs from Java's clients, as docs/compatibility.md has them: asked of both libraries."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import confluent_kafka.cimpl
import pytest

from devtools.broker.jars import KAFKA_VERSION, kafka_jars
from spark_groupsource.fetch.contract import BUFFER_BYTES
from spark_groupsource.options.client_settings import consumer_settings, member_settings, producer_settings

PAGE = (Path(__file__).parents[3] / "docs" / "compatibility.md").read_text(encoding="utf-8")
TABLE = PAGE.split("\n### Defaults\n")[1].split("\n#")[0]
ROWS = [[cell.strip() for cell in line.split("|")[1:-1]] for line in TABLE.splitlines() if line.startswith("| `")]

OURS: Mapping[str, Mapping[str, str]] = {
    "tasks": consumer_settings({}, BUFFER_BYTES),
    "member": member_settings({}),
    "sink": producer_settings({}, exactly_once=False),
}
"""Our clients, as the page names them."""

JAVAS = """
import java.util.*;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;

public class Defaults {
    public static void main(String[] arguments) {
        for (var kind : List.of(ConsumerConfig.configDef(), ProducerConfig.configDef()))
            kind.defaultValues().forEach((name, value) -> System.out.println(name + "=" + value));
    }
}
"""


@pytest.fixture(scope="module")
def javas(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The defaults of Java's consumer and producer, of the Kafka that the tests run."""
    source = tmp_path_factory.mktemp("defaults") / "Defaults.java"
    source.write_text(JAVAS)
    command = ["java", "-cp", kafka_jars("java", KAFKA_VERSION, print).classpath, str(source)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
    return dict(line.split("=", 1) for line in printed.splitlines() if "=" in line)


def default_of_librdkafka(name: str) -> str:
    """Return librdkafka's own default: what a new configuration has."""
    library = ctypes.CDLL(confluent_kafka.cimpl.__file__)
    for function, result in (("conf_new", ctypes.c_void_p), ("topic_conf_new", ctypes.c_void_p)):
        getattr(library, f"rd_kafka_{function}").restype = result
    text, size = ctypes.create_string_buffer(512), ctypes.c_size_t(512)
    for kind in ("conf", "topic_conf"):
        conf = ctypes.c_void_p(getattr(library, f"rd_kafka_{kind}_new")())
        found = getattr(library, f"rd_kafka_{kind}_get")(conf, name.encode(), text, ctypes.byref(size))
        getattr(library, f"rd_kafka_{kind}_destroy")(conf)
        if found == 0:
            return text.value.decode()
    raise AssertionError(f"librdkafka has no {name}")


def test_the_page_has_such_defaults() -> None:
    assert len(ROWS) >= 8


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_the_defaults_of_both_clients_are_those_of_the_page(row: list[str], javas: dict[str, str]) -> None:
    """Fails when a new version of a client has another default: look whether this source still needs its own."""
    names = re.findall(r"`([^`]+)`", row[0])
    assert default_of_librdkafka(names[-1]) == row[2]
    assert javas.get(names[0], "none") == row[1]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_this_sources_defaults_are_those_of_the_page(row: list[str]) -> None:
    name = re.findall(r"`([^`]+)`", row[0])[-1]
    for part in row[3].split(", "):
        value, client = re.fullmatch(r"(\S+) \((\w+)\)", part).groups()  # type: ignore[union-attr]
        assert OURS[client].get(name, default_of_librdkafka(name)) == value
