"""What a Python worker keeps from one task to the next, and what it gives back."""

from __future__ import annotations

import logging
import platform
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from spark_groupsource.brokers import client_pool
from spark_groupsource.brokers.client_pool import pool
from spark_groupsource.fetch import consumer_cache

# Memory like that of records, all of it free but for what lies at its end, which keeps malloc from returning it by itself.
FREE_MEMORY_AND_A_CONSUMER = """
import ctypes, os
from spark_groupsource.fetch.consumer_cache import borrowed

class Consumer:
    pid = os.getpid()

    def __init__(self, client):
        self.errors = {}

    def unassign(self):
        pass

    close = unassign

def show_resident():
    with open("/proc/self/statm") as file:
        print(int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE"))

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
records = [libc.malloc(1000) for _ in range(100_000)]
for record in records:
    ctypes.memset(record, 1, 1000)
for record in records[:-1]:
    libc.free(record)
show_resident()
with borrowed(Consumer, {"group.id": "next"}):
    show_resident()
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another malloc")
def test_what_the_query_before_has_left_is_given_back_before_the_next() -> None:
    shown = subprocess.run([sys.executable, "-c", FREE_MEMORY_AND_A_CONSUMER], capture_output=True, text=True, check=True).stdout
    before, after = map(int, shown.split())
    assert after < before - 80_000_000


class Played:
    """A consumer that notes whether it is closed, and cannot be unassigned after `fails` was set."""

    def __init__(self, _client: Mapping[str, str]) -> None:
        self.errors: dict[int, KafkaError] = {}
        self.closed = False
        self.fails = False

    def unassign(self) -> None:
        if self.fails:
            raise KafkaException(KafkaError(KafkaError._STATE))

    def close(self) -> None:
        self.closed = True

    def abandon(self) -> None:
        pass


def used_once(fails: bool) -> Played:
    with consumer_cache.borrowed(cast("Any", Played), {"group.id": "g"}) as consumer:
        assert isinstance(consumer, Played)
        consumer.fails = fails
    return consumer


def test_a_consumer_that_cannot_be_unassigned_is_closed_and_the_task_succeeds(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        failed = used_once(fails=True)

    assert failed.closed
    assert id(failed) not in pool()._living
    assert "could not be unassigned" in caplog.text
    assert used_once(fails=False) is not failed
    pool().close_kept()


def test_a_consumer_whose_connections_the_network_may_have_forgotten_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = used_once(fails=False)
    assert used_once(fails=False) is kept
    monkeypatch.setattr(client_pool, "KEPT_S", 0.0)
    assert used_once(fails=False) is not kept
    pool().close_kept()
