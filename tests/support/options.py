"""Helpers shared by the option tests: minimal options, options with a password, and the message of a refusal."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from spark_groupsource.errors import OptionError
from spark_groupsource.options.model import Options

NEEDED = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.group.id": "billing"}

BASE = {**NEEDED, "subscribe": "orders"}

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"

WITH_PASSWORD = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.jaas.config": f'{PLAIN} required username="alice" password="hunter2";',
    "kafka.ssl.key.password": "hunter2",
}


def parse(**options: str) -> Options:
    return Options.parse({**BASE, **options})


def refusal(options: Mapping[str, str]) -> str:
    with pytest.raises(OptionError) as caught:
        Options.parse(options)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None  # pydantic's error is not shown beside it
    return str(caught.value)
