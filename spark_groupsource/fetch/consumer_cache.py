"""Lends consumers to tasks, and caches them between tasks, keyed by their kind and client settings.

Spark runs many tasks in one Python worker. Reusing a consumer saves the 30 to 65 ms that it takes to connect a new one. While a
task borrows a consumer, no other task uses it.

A consumer never joins the group and never commits. It has the user's `group.id`, so that the same ACLs and quotas apply to it as
to the driver.
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
from spark_groupsource.fetch.contract import FetchConsumer

log = logging.getLogger(__name__)

Kind = TypeVar("Kind", bound=FetchConsumer)


@contextmanager
def borrowed(make: Callable[[Mapping[str, str]], Kind], client: Mapping[str, str]) -> Iterator[Kind]:
    """Lend a consumer that has these settings and no assignment.

    After an error in the `with` block, the consumer is closed. Otherwise, it is cached for the next task. Two tasks that run in
    one process at the same time get two consumers.

    Args:
        make: Creates a consumer if none is cached.
        client: The consumer's finished settings.

    Raises:
        OptionError: librdkafka refuses the settings.
    """
    clients = pool()
    # The key includes `make`, so a cached consumer is of the right kind.
    key = make, digest(client)
    consumer = cast("Kind | None", clients.take(key))
    if consumer is None:
        _give_memory_back()
        consumer = clients.add(make(client))
    # Forget errors from before this task borrowed the consumer. They would look like the cause of a new failure.
    consumer.errors.clear()
    clean = False
    try:
        yield consumer
        clean = True
    except GeneratorExit:
        # The task ended early because the query has a LIMIT or was stopped. Nothing is wrong with the consumer.
        clean = True
        raise
    finally:
        # In a forked child, a call to the parent's consumer would hang, because its threads do not exist there.
        if clients.has(consumer):
            if clean and _is_unassigned(consumer):
                clients.keep(key, consumer)
            else:
                clients.close(consumer)


def _is_unassigned(consumer: FetchConsumer) -> bool:
    """Unassign a consumer, and return whether that worked. If it did not, a Fetch would delay the next task's first requests."""
    try:
        consumer.unassign()
    except KafkaException as refused:
        log.info("a consumer's partitions could not be unassigned, so the next task will use a new one: %s", refused.args[0])
        return False
    return True


def _give_memory_back() -> None:
    """Make glibc's malloc return its free memory to the operating system.

    malloc keeps the memory in which a thread has decompressed records, even after the query has ended. A worker that serves one
    query after another would grow with each of them.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
