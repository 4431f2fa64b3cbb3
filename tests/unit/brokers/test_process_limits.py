"""A process whose address space is limited: its clients share one arena, and its errors name the limit and what to set."""

from __future__ import annotations

import subprocess
import sys

import pytest
from confluent_kafka import KafkaError

from spark_groupsource.brokers.broker_errors import explain
from spark_groupsource.brokers.process_limits import address_space, limit_reached, limits_named
from spark_groupsource.errors import ProcessLimitReached
from spark_groupsource.fetch.refusals import refusal
from spark_groupsource.sink.failures import failure
from tests.support.fetching import NATIVE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the address space of a process")

NO_THREAD = KafkaError(KafkaError._CRIT_SYS_RESOURCE, "Unable to create broker thread")

# Clients are made until the limit is reached. What is imported by then, and what is allocated, stays below it.
LIMITED = """
import logging, resource, sys
from confluent_kafka import Producer
from spark_groupsource.brokers.client import make_client
from spark_groupsource.native.client import NativeClient
from spark_groupsource.native.libraries import load_libraries
from spark_groupsource.native.structs import PRODUCER
load_libraries()
make, more_mb = sys.argv[1], int(sys.argv[2])
settings = {"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}
size = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmSize:")) << 10
resource.setrlimit(resource.RLIMIT_AS, (size + (more_mb << 20),) * 2)
def clients():
    while True:
        if make == "native":
            yield NativeClient(PRODUCER, settings)
        else:
            yield make_client(Producer, settings, print, logging.getLogger())
made = []
try:
    for client in clients():
        made.append(client)
except Exception as error:
    print(type(error).__name__, error, file=sys.stderr)
print(len(made))
sys.stdout.flush()
import os
os._exit(0)
"""


def limited(make: str, more_mb: int, **variables: str) -> tuple[int, str]:
    """Return how many clients a process has made in so many MB, and with which error it could make no more."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, make, str(more_mb)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env=variables,
    )
    return int(done.stdout.split()[-1]), done.stderr


@NATIVE
@pytest.mark.parametrize("make", ["native", "confluent"])
def test_the_error_of_a_client_without_a_thread_names_the_limit_and_what_to_set(make: str) -> None:
    _, said = limited(make, 100, PYSPARK_EXECUTOR_MEMORY_MB="100")
    assert said.startswith("ProcessLimitReached A Kafka client cannot be created: ")
    assert "Failed to create thread: Cannot allocate memory" in said
    assert (
        "MB of address space (spark.executor.pyspark.memory, divided by spark.executor.cores), but needs more. Set the limit to"
        in said
    )


@NATIVE
def test_clients_do_not_reserve_an_arena_for_each_of_their_threads() -> None:
    made, _ = limited("native", 400)
    # Each has three threads, with stacks of 8 MB. With an arena of 64 MB for each there is no room for a third one.
    assert made > 10


def test_a_process_without_a_limit_is_told_to_look_at_the_machine() -> None:
    assert address_space() is None
    said = str(limit_reached("A Kafka client cannot be created"))
    assert said.startswith("A Kafka client cannot be created. Nothing is lost: ")
    assert "no limit on its address space" in said


def test_python_without_memory_or_threads_is_this_error_and_other_errors_stay() -> None:
    for error in (MemoryError(), RuntimeError("can't start new thread")):
        with pytest.raises(ProcessLimitReached, match=r"^A task cannot read: "), limits_named("A task cannot read"):
            raise error
    with pytest.raises(RuntimeError, match=r"^of the user$"), limits_named("A task cannot read"):
        raise RuntimeError("of the user")


def test_librdkafka_without_a_thread_is_no_question_of_brokers_or_options() -> None:
    silent = KafkaError(KafkaError._TIMED_OUT)
    found = [
        explain(NO_THREAD, "reading"),
        refusal(NO_THREAD, "reading"),
        failure(silent, "writing", {NO_THREAD.code(): NO_THREAD}),
    ]
    assert [type(error) for error in found] == [ProcessLimitReached] * 3
    assert all("Unable to create broker thread" in str(error) for error in found)
