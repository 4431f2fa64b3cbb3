"""The consumers of this process, which are kept from task to task: one for each kind of consumer and set of client settings.

Spark uses a Python worker for many tasks. A consumer that is kept saves the connections of a new one, which take 30 to 65 ms. A
task borrows the consumer, and no other task uses it meanwhile.

A consumer never joins the group and never commits. It has the user's `group.id`, so that it needs no more ACLs and quotas than
the driver.
"""

from __future__ import annotations

import ctypes
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar, cast

from confluent_kafka import KafkaException

from spark_groupsource.brokers.client_pool import digest, pool
from spark_groupsource.fetch.intake import FetchConsumer

log = logging.getLogger(__name__)

Kind = TypeVar("Kind", bound=FetchConsumer)


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
    clients = pool()
    # The key names the maker, so the consumer is of its kind.
    key = make, digest(client)
    consumer = cast("Kind | None", clients.take(key))
    if consumer is None:
        _give_memory_back()
        consumer = clients.add(make(client))
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
        if clients.has(consumer):
            if clean and _is_unassigned(consumer):
                clients.keep(key, consumer)
            else:
                clients.close(consumer)


def _is_unassigned(consumer: FetchConsumer) -> bool:
    """Unassign a consumer. One that still fetches delays the next task's first requests: they wait behind its Fetch."""
    try:
        consumer.unassign()
    except KafkaException as refused:
        log.info("A consumer cannot be unassigned, so it is closed and not kept for the next task: %s", refused.args[0])
        return False
    return True


def _give_memory_back() -> None:
    """Make glibc's malloc return its free memory to the system.

    It keeps the memory in which a thread has decompressed records for that thread, even after its query has ended. A worker that
    serves one query after the other would grow with each.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
