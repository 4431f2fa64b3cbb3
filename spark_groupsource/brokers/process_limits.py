"""The limits of this process that Kafka clients reach first: its address space, which Spark may limit, and its threads.

librdkafka has a thread for each broker, and a few more, in each client. For a thread that allocates memory glibc reserves 64 MB
of address space, an arena, until there are eight for each core. So a limit is reached when little memory is used:
a client of one broker reserved 0.3 GB, and with one arena for all threads 0.04 GB.
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
"""glibc's number for the setting, from malloc.h."""

_SET_BY = {
    "PYSPARK_EXECUTOR_MEMORY_MB": ("spark.executor.pyspark.memory, divided by spark.executor.cores", "2g for each core"),
    "PYSPARK_PLANNER_MEMORY_MB": ("spark.sql.planner.pythonExecution.memory", "2g"),
}
"""Which setting of Spark limits a process that has this variable, and what is enough (docs/performance.md)."""

_NO_THREAD = re.compile(r"(create|start) (\w+ )?thread")
"""How librdkafka and Python say that a thread cannot be started."""


def address_space() -> int | None:
    """Return how many bytes of address space this process may have; `None` if it has no limit."""
    if sys.platform != "linux":
        return None
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else limit


def save_address_space() -> None:
    """Have the threads of a client that is made next share one arena, if the address space of this process is limited.

    Measured (2 cores, one broker, glibc 2.36): reading 200,000 records of 1 KB and 800,000 of 100 B took 0.17 and 0.29 s of CPU
    time with one arena, and 0.30 and 0.37 s without a bound. The worker's peak was 0.4 GB instead of 0.8 GB. Other threads of a
    process, which are not ours, may gain from arenas of their own, so without a limit nothing is changed.
    """
    if address_space() is not None:
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries do not have it
        if mallopt is not None:
            mallopt(_M_ARENA_MAX, 1)


def is_limit(error: KafkaError) -> bool:
    """Return whether an error of librdkafka says that the process has no memory or no thread left."""
    return error.code() == KafkaError._CRIT_SYS_RESOURCE


def says_limit(text: str) -> bool:
    """Return whether a text of librdkafka or of Python says that a thread cannot be started."""
    return _NO_THREAD.search(text) is not None


def limit_reached(what: str, environment: Mapping[str, str] = os.environ) -> ProcessLimitReached:
    """Return the error for a process without memory or threads. It names the limit, and what to set.

    Args:
        what: What has failed, and with which reason.
        environment: The variables of this process, by which Spark passes its limits on.
    """
    limit = address_space()
    if limit is None:
        why = (
            "This process has no limit of its address space. So the machine or the container has no memory or no process left: "
            "raise its limit of memory, or that of processes (`ulimit -u`, the container's pids limit)."
        )
    else:
        setting, enough = next((_SET_BY[name] for name in _SET_BY if name in environment), ("`ulimit -v`", "2 GB"))
        why = (
            f"This process may have {limit >> 20} MB of address space ({setting}), and needs more. Set at least {enough}, and "
            "more with many brokers or if your code needs memory. Or remove the limit."
        )
    return ProcessLimitReached(f"{what}. Nothing is lost: a restart of the query reads these records. {why}")


@contextmanager
def limits_named(doing: str) -> Iterator[None]:
    """Raise `ProcessLimitReached` in place of Python's own errors for a process without memory or threads.

    Args:
        doing: What fails then.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not says_limit(str(error)):
            raise
        raise limit_reached(f"{doing}: {type(error).__name__}: {error}".rstrip(": ")) from error
