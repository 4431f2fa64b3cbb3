"""The schema registry of `make registry` on a free port of 127.0.0.1. It ends with the process that runs the tests."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from devtools.broker.ports import free_ports
from devtools.registry import address, answers, registry_command
from tests.support.spark_process import START_LIMIT_S, SparkProcess, running
from tests.support.waiting import until


class Registry:
    """A running registry: where it is, and what it was asked for."""

    def __init__(self, url: str, process: SparkProcess) -> None:
        self.url = url
        self._process = process

    def fetched(self) -> Counter[int]:
        """Return how often the schema of each id was fetched, by the registry's access log."""
        return Counter(map(int, re.findall(r'method="GET" path="/apis/ccompat/v7/schemas/ids/(\d+)', self._process.log())))

    def stop(self) -> None:
        self._process.close()


@contextmanager
def registry(folder: Path) -> Iterator[Registry]:
    """Start a registry, with its log in the folder, and wait until it answers."""
    port = free_ports(1)[0]
    with running("registry", folder, registry_command(port)) as process:
        until(lambda: answers(port), "the registry answers", START_LIMIT_S)
        yield Registry(address(port), process)
