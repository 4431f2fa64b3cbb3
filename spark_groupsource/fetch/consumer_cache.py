"""The consumers of this process, kept from task to task: one for each kind of consumer and set of client settings.

Spark uses a Python worker for many tasks. A consumer that is kept saves the connections of a new one, which take 30 to 65 ms. A
task borrows the consumer, and no other task uses it meanwhile.

A consumer never joins the group and never commits. It has the user's `group.id`, so that it needs no more ACLs and quotas than
the driver.
"""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar, cast

from confluent_kafka import KafkaException

from spark_groupsource.fetch.intake import FetchConsumer

log = logging.getLogger(__name__)

Kind = TypeVar("Kind", bound=FetchConsumer)

_MOST_KEPT = 8
"""A worker may serve several queries, each with two consumers. The consumers of those that have ended must not accumulate."""


@dataclass(frozen=True)
class _Key:
    make: Callable[[Mapping[str, str]], FetchConsumer]
    digest: str


_KEPT_S = 30.0
"""How long a consumer is kept. The network may forget connections that are idle, and each of them would cost a task six seconds
of silence. A new consumer costs little beside the pause before it."""

_kept: dict[_Key, tuple[FetchConsumer, float]] = {}
"""The consumers that no task uses now, and until when they serve."""

_living: dict[int, FetchConsumer] = {}
"""All consumers that are not closed, by `id`."""


@contextmanager
def borrowed(make: Callable[[Mapping[str, str]], Kind], client: Mapping[str, str]) -> Iterator[Kind]:
    """Lend the consumer of these settings. Nothing is assigned to it.

    After an error in the body the consumer is closed. Otherwise it is kept for the next task. Two tasks that run in one process
    at the same time get two consumers.

    Args:
        make: Makes a consumer if none is kept.
        client: The finished settings of the consumer.

    Raises:
        OptionError: librdkafka refuses the settings.
    """
    key = _Key(make, _digest(client))
    # Taken out while it is lent: a second task of this process would assign its own range, and both would read wrong records. The
    # key names the maker, so the consumer is of its kind.
    kept, until = _kept.pop(key, (None, 0.0))
    consumer = cast("Kind | None", kept)
    if consumer is not None and time.monotonic() >= until:
        _close(consumer)
        consumer = None
    if consumer is None:
        _give_memory_back()
        consumer = make(client)
    _living[id(consumer)] = consumer
    # What was reported while nobody used it may be over, and would be taken for the reason of a new failure.
    consumer.errors.clear()
    clean = False
    try:
        yield consumer
        clean = True
    except GeneratorExit:
        # The task ended early: the query has a limit, or was stopped. Nothing is wrong with the consumer.
        clean = True
        raise
    finally:
        # In a forked child a call of the parent's consumer would hang: its threads do not exist here.
        if consumer.pid == os.getpid():
            _give_back(key, consumer) if clean else _close(consumer)


def close_kept() -> None:
    """Close all consumers that this process keeps."""
    while _kept:
        _key, (consumer, _until) = _kept.popitem()
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
    _kept[key] = consumer, time.monotonic() + _KEPT_S
    if previous is not None:
        _close(previous[0])
    while len(_kept) > _MOST_KEPT:
        _close(_kept.pop(next(iter(_kept)))[0])


def _close(consumer: FetchConsumer) -> None:
    _living.pop(id(consumer), None)
    consumer.close()


def _give_memory_back() -> None:
    """Make glibc's malloc return its free memory to the system.

    It keeps the memory in which a thread has decompressed records for that thread, even after its query has ended. A worker that
    serves one query after the other would grow with each.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def _digest(client: Mapping[str, str]) -> str:
    return hashlib.sha256(repr(sorted(client.items())).encode()).hexdigest()


def _abandon_inherited() -> None:
    """Forget the parent's consumers, in a forked child. They are never used or freed there."""
    for consumer in _living.values():
        consumer.abandon()
    _living.clear()
    _kept.clear()


os.register_at_fork(after_in_child=_abandon_inherited)
# Otherwise their threads would still run while the process unloads the libraries that they use.
atexit.register(close_kept)
