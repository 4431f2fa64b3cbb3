"""Handles the process limits that Kafka clients reach first: address space, which Spark may limit, and threads.

A librdkafka client has a thread for each broker, and a few more. For each thread that allocates memory, glibc reserves 64 MB of
address space, called an arena, until there are eight arenas per core. So a process may reach the limit while using little memory:
a client with one broker reserved 0.3 GB, but only 0.04 GB with one arena for all threads.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka import KafkaError

from spark_groupsource.errors import ProcessLimitReached

_M_ARENA_MAX = -8
"""glibc's number for the setting that limits the number of arenas, from malloc.h."""

_SET_BY = {
    "PYSPARK_EXECUTOR_MEMORY_MB": ("spark.executor.pyspark.memory, divided by spark.executor.cores", "2g for each core"),
    "PYSPARK_PLANNER_MEMORY_MB": ("spark.sql.planner.pythonExecution.memory", "2g"),
}
"""For each environment variable, the Spark setting that limits such a process, and a sufficient value (docs/performance.md)."""

_NO_THREAD = re.compile(r"(create|start) (\w+ )?thread")
"""Part of the message from librdkafka or Python if a thread cannot be started."""


def address_space() -> int | None:
    """Return this process's address space limit in bytes, or `None` if there is none."""
    if sys.platform != "linux":
        return None
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else limit


def save_address_space() -> None:
    """Make the next client's threads share one arena if this process's address space is limited.

    Measured (2 cores, one broker, glibc 2.36): reading 200,000 records of 1 KB and 800,000 of 100 B took 0.17 and 0.29 s of CPU
    time with one arena, and 0.30 and 0.37 s without a limit. The worker's peak was 0.4 GB instead of 0.8 GB. Without an address
    space limit, nothing is changed, because other libraries' threads may benefit from their own arenas.
    """
    if address_space() is not None:
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries do not have it
        if mallopt is not None:
            mallopt(_M_ARENA_MAX, 1)


def is_limit(error: KafkaError) -> bool:
    """Return whether a librdkafka error means that the process has no memory or threads left."""
    return error.code() == KafkaError._CRIT_SYS_RESOURCE


def says_limit(text: str) -> bool:
    """Return whether a message from librdkafka or Python means that a thread cannot be started."""
    return _NO_THREAD.search(text) is not None


def limit_reached(failure: str, environment: Mapping[str, str] = os.environ) -> ProcessLimitReached:
    """Return the error for a process that cannot get more memory or threads. It names the limit and the value to set.

    Args:
        failure: What failed, and why.
        environment: This process's environment variables, through which Spark passes its limits.
    """
    limit = address_space()
    if limit is None:
        advice = (
            "This process has no limit on its address space, so the machine or the container has run out of memory or "
            "processes. Raise its memory limit, or its process limit (`ulimit -u`, the container's pids limit)."
        )
    else:
        setting, enough = next((_SET_BY[name] for name in _SET_BY if name in environment), ("`ulimit -v`", "2 GB"))
        advice = (
            f"This process is limited to {limit >> 20} MB of address space ({setting}), but needs more. Set the limit to at "
            f"least {enough}, and to more if there are many brokers or your code needs memory. Or remove the limit."
        )
    return ProcessLimitReached(f"{failure}. Nothing is lost: a restarted query will read these records. {advice}")


@contextmanager
def limits_named(doing: str) -> Iterator[None]:
    """Raise `ProcessLimitReached` instead of Python's own errors if the process cannot get more memory or threads.

    Args:
        doing: What the process was doing, for the error message.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not says_limit(str(error)):
            raise
        raise limit_reached(f"{doing}: {type(error).__name__}: {error}".rstrip(": ")) from error
