"""Helpers shared by the tests of Kafka client settings: the clients' own verdict, and prefixes of common settings."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Mapping
from pathlib import Path

import confluent_kafka.cimpl
import pytest
from confluent_kafka import Consumer

from spark_groupsource.errors import OptionError
from spark_groupsource.kafka_settings.translation import translate

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"

OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"

SASL_SSL = {"security.protocol": "SASL_SSL"}

WITH_PLAIN = {**SASL_SSL, "sasl.mechanism": "PLAIN"}

WITH_OAUTH = {**SASL_SSL, "sasl.mechanism": "OAUTHBEARER"}


def refusal(settings: Mapping[str, str]) -> str:
    with pytest.raises(OptionError) as caught:
        translate(settings)
    return str(caught.value)


def accepted_by_librdkafka(settings: Mapping[str, str]) -> bool:
    Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": "0", **settings}).close()
    return True


def jaas(module: str, options: str = "") -> dict[str, str]:
    """Return the setting that names a login module, with these options of it."""
    return {"sasl.jaas.config": f"{module} required {options};"}


def properties_of_the_installed_library(folder: Path) -> dict[str, tuple[str, str]]:
    """Name -> (scope, what it takes) of every property of librdkafka that takes text."""
    library = ctypes.CDLL(confluent_kafka.cimpl.__file__)
    libc = ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    libc.fclose.argtypes = library.rd_kafka_conf_properties_show.argtypes = [ctypes.c_void_p]
    file = libc.fopen(os.fsencode(folder / "properties.md"), b"w")
    library.rd_kafka_conf_properties_show(file)
    libc.fclose(file)
    found = {}
    for line in (folder / "properties.md").read_text().splitlines():
        name, scope, allowed, *_ = [cell.strip() for cell in line.split(" | ", 5)] + [""] * 3
        kind = re.search(r"\*Type: ([^*]+)\*", line)
        if kind and name not in found:
            forms = {"boolean": "bool", "integer": allowed.replace(" ", ""), "enum value": allowed.replace(", ", "|")}
            found[name] = (scope, "object" if "API" in kind[1] else forms.get(kind[1], allowed or "text"))
    return found
