"""Every reader, the settings to read with, and a broker that cleans its logs quickly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs miss them
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from spark_groupsource.dev_broker import Cluster
from spark_groupsource.fetch import consumer_cache as consumers
from spark_groupsource.fetch import native_consumer as native
from spark_groupsource.fetch import pure_consumer as pure
from spark_groupsource.fetch.contract import Reader
from spark_groupsource.fetch.settings import BUFFER_BYTES, FetchSettings
from spark_groupsource.options.client_settings import consumer_settings
from tests.support.fetching import NATIVE, MakeSettings


@pytest.fixture(params=[pytest.param(pure.read, id="pure"), pytest.param(native.read, id="native", marks=NATIVE)])
def read(request: pytest.FixtureRequest) -> Reader:
    reader: Reader = request.param
    return reader


@pytest.fixture
def using(cluster: Cluster) -> MakeSettings:
    """Make settings: client settings as a mapping, all others by name."""

    def make(client: Mapping[str, str] | None = None, buffer_bytes: int = BUFFER_BYTES, **others: Any) -> FetchSettings:
        given = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "fetch-tests", **(client or {})}
        finished = consumer_settings(given, buffer_bytes)
        return FetchSettings(client=finished, buffer_bytes=buffer_bytes, **{"poll_timeout_ms": 30_000, **others})

    return make


@pytest.fixture(scope="module", autouse=True)
def no_consumer_left() -> Iterator[None]:
    yield
    consumers.close_kept()


@pytest.fixture(scope="module")
def quick_cleaner(cluster: Cluster, admin: AdminClient) -> None:
    """The log cleaner looks for work every 0.1 s instead of every 15 s."""
    entry = ConfigEntry("log.cleaner.backoff.ms", "100", incremental_operation=AlterConfigOpType.SET)
    for node in cluster.nodes:
        resource = ConfigResource(ResourceType.BROKER, str(node.id), incremental_configs=[entry])
        for done in admin.incremental_alter_configs([resource]).values():
            done.result()
