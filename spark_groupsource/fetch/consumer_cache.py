"""The consumers of this process: one per reader and set of client settings, kept from task to task.

Spark's Python workers are used again for later tasks, so a consumer that is kept saves the connections of a new one (30
to 65 ms). A reading task borrows it: while it does, the consumer is in nobody else's hands. It never joins the group and
never commits; `group.id` is the user's own, so that the ACLs and quotas that the driver needs suffice.
"""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import KafkaException

from spark_groupsource.fetch.intake import FetchConsumer, MakeConsumer

log = logging.getLogger(__name__)

# A worker may serve several queries; the consumers of those that ended must not pile up.
_MOST_KEPT = 4


@dataclass(frozen=True)
class _Key:
    make: MakeConsumer
    digest: str


_kept: dict[_Key, FetchConsumer] = {}
_living: dict[int, FetchConsumer] = {}


@contextmanager
def borrowed(make: MakeConsumer, client: Mapping[str, str]) -> Iterator[FetchConsumer]:
    """Lend the consumer of these settings, made by `make` if there is none; nothing is assigned to it.

    After an error in the body it is closed, else kept for the next task. Two tasks at a time in one process get two.
    Raises OptionError when librdkafka refuses the settings.
    """
    key = _Key(make, _digest(client))
    consumer = _kept.pop(key, None)
    if consumer is None:
        _give_memory_back()
        consumer = make(client)
    _living[id(consumer)] = consumer
    consumer.errors.clear()
    clean = False
    try:
        yield consumer
        clean = True
    except GeneratorExit:
        # The task has enough (a limit in the query), or is gone.
        clean = True
        raise
    finally:
        # In a forked child, another process's consumer must not be touched: its threads are not here, so it hangs.
        if consumer.pid == os.getpid():
            _give_back(key, consumer) if clean else _close(consumer)


def close_kept() -> None:
    """Close all consumers that this process keeps."""
    while _kept:
        _key, consumer = _kept.popitem()
        _close(consumer)


def _give_back(key: _Key, consumer: FetchConsumer) -> None:
    try:
        # A consumer that still fetches delays the next task's first requests: they wait behind its Fetch.
        consumer.unassign()
    except KafkaException as refused:
        log.info("A consumer cannot be unassigned, so it is closed and not kept for the next task: %s", refused.args[0])
        _close(consumer)
        return
    previous = _kept.pop(key, None)
    _kept[key] = consumer
    if previous is not None:
        _close(previous)
    while len(_kept) > _MOST_KEPT:
        _close(_kept.pop(next(iter(_kept))))


def _close(consumer: FetchConsumer) -> None:
    _living.pop(id(consumer), None)
    consumer.close()


def _give_memory_back() -> None:
    """Where malloc is glibc's, have it return what is free to the system.

    It keeps what a thread has unpacked and freed for that thread, also when its query has ended: a worker that serves one query
    after the other would grow with each.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def _digest(client: Mapping[str, str]) -> str:
    return hashlib.sha256(repr(sorted(client.items())).encode()).hexdigest()


def _abandon_inherited() -> None:
    """Runs in a forked child: the parent's consumers are let alone for ever."""
    for consumer in _living.values():
        consumer.abandon()
    _living.clear()
    _kept.clear()


os.register_at_fork(after_in_child=_abandon_inherited)
# Else their threads would run on while the process takes down the libraries that they use.
atexit.register(close_kept)
