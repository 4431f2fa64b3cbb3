"""A client is destroyed on a thread that is not its own, whoever drops it. librdkafka aborts the process otherwise."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from spark_groupsource.brokers.droppable import droppable
from tests.support.waiting import until

# The main thread makes nothing that the collector counts, so the client's own thread is the one that collects: when a request
# that nobody waits for has failed, and when a token is over.
COLLECTED = """
import gc, time, weakref
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from spark_groupsource.brokers.droppable import droppable

class Owner:
    pass

def token(config):
    collect_often = [[] for _ in range(1000)]
    return "token", time.time() + 2

def drop(kind, **settings):
    owner = Owner()
    owner.itself = owner
    owner.client = droppable(kind)({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, **settings})
    if kind is AdminClient and not settings:
        owner.client.describe_cluster(request_timeout=0.5)
    return weakref.ref(owner.client)

OAUTH = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER", "oauth_cb": token}
gc.disable()
client = drop(CLIENT)
gc.set_threshold(1)
gc.enable()
deadline = time.monotonic() + 60
while client() is not None and time.monotonic() < deadline:
    time.sleep(0.1)
print(client())
"""


@pytest.mark.parametrize(
    "client", ["AdminClient", "AdminClient, **OAUTH", "Producer, **OAUTH", "Consumer, **{'group.id': 'any', **OAUTH}"]
)
def test_a_dropped_client_that_its_own_thread_finds_as_garbage_ends_on_another(client: str) -> None:
    program = COLLECTED.replace("CLIENT", client)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, "None\n"), done.stderr


def client_threads() -> set[str]:
    """The threads of librdkafka's clients in this process."""
    found = set()
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it has just ended
            if (thread / "comm").read_text().startswith("rdk:"):
                found.add(thread.name)
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
@pytest.mark.parametrize("on_the_main_thread", [True, False])
def test_a_client_that_is_dropped_ends_at_once(on_the_main_thread: bool) -> None:
    before = client_threads()
    held = [droppable(AdminClient)({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})]
    own = client_threads() - before
    assert own
    if on_the_main_thread:
        held.clear()
    else:
        thread = threading.Thread(target=held.clear)
        thread.start()
        thread.join()
    until(lambda: not own & client_threads(), "the client's threads have ended")


def test_a_class_is_made_once_and_keeps_its_name() -> None:
    assert droppable(AdminClient) is droppable(AdminClient)
    assert (droppable(AdminClient).__name__, issubclass(droppable(AdminClient), AdminClient)) == ("AdminClient", True)
