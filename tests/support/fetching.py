"""Helpers shared by the reader tests: a range's rows and offsets, and deleted records."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from spark_groupsource.fetch.contract import BUFFER_BYTES, FetchRange, FetchSettings, Reader
from spark_groupsource.native.libraries import why_unavailable
from spark_groupsource.options.client_settings import consumer_settings
from tests.support.waiting import until

Row = dict[str, Any]

Headers = list[tuple[str, "bytes | None"]]

MakeSettings = Callable[..., FetchSettings]

MEGABYTE = 1_000_000
NATIVE = pytest.mark.skipif(why_unavailable() is not None, reason=f"no native reader: {why_unavailable()}")

NOWHERE = consumer_settings({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}, BUFFER_BYTES)


def rows(read: Reader, what: FetchRange, how: FetchSettings) -> list[Row]:
    found: list[Row] = []
    for batch in read(what, how):
        assert batch.schema.equals(how.schema, check_metadata=True)
        assert batch.num_rows > 0
        found += batch.to_pylist()
    return found


def offsets(read: Reader, what: FetchRange, how: FetchSettings) -> list[int]:
    return [row["offset"] for row in rows(read, what, how)]


def delete_before(admin: AdminClient, topic: str, offset: int, partition: int = 0) -> None:
    for done in admin.delete_records([TopicPartition(topic, partition, offset)]).values():
        done.result(30)


def delete_topic(admin: AdminClient, topic: str) -> None:
    admin.delete_topics([topic])[topic].result(30)
    until(lambda: topic not in admin.list_topics(timeout=30).topics, "the topic is deleted")


def warnings_of(caplog: pytest.LogCaptureFixture) -> str:
    """Return the warnings except librdkafka's, because a client left over from another test may log some too."""
    ours = (record for record in caplog.records if not record.name.endswith("librdkafka"))
    warned = (record for record in ours if record.levelno == logging.WARNING)
    return "\n".join(record.getMessage() for record in warned)
