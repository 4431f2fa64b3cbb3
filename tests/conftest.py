"""One broker for the whole session, and what every test against it needs."""

from __future__ import annotations

import itertools
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from hypothesis import HealthCheck, settings

from devtools.broker import Cluster
from spark_groupsource.brokers import oauth_callback
from spark_groupsource.brokers.client_pool import pool
from spark_groupsource.spark.messages import HIDE_TRACEBACK
from tests.support.producing import IN_ORDER, send

if TYPE_CHECKING:
    from tests.support.secured import Secured

Record = tuple[bytes | str | None, bytes | str | None]


class MakeTopic(Protocol):
    """Creates a topic with a name of its own, and returns the name."""

    def __call__(self, partitions: int = 1, config: Mapping[str, str] | None = None) -> str: ...


class Produce(Protocol):
    """Writes (key, value) records, to one partition if it is given, and returns when the broker has them all."""

    def __call__(self, topic: str, records: Sequence[Record], partition: int | None = None) -> None: ...


# A shell that starts this in the background, as CI may, makes it ignore SIGINT, and so would each process of a test.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine is no fault of what is tested.
settings.register_profile("busy machines", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy machines")

LONGER_S = {
    # A kernel, two Sparks in it, and up to 900 s for them to end.
    "tests/notebooks/": 1000,
    # The demo as a whole: its own limits for each of its steps add up to more.
    "tests/spark/test_demo.py": 900,
    # Workers of a cluster, an environment that pip fills, a copy that is killed again and again.
    "tests/spark/test_submit.py": 600,
    "tests/spark/test_package.py": 600,
    "tests/spark/test_page_programs.py": 900,
    "tests/spark/test_copy_topic.py": 600,
    "tests/spark/test_pipelines.py": 600,
    # The limits of their own steps add up to more.
    "tests/spark/test_graceful_stop.py": 900,
    "tests/spark/test_changes.py": 600,
    "tests/spark/test_found_source.py": 900,
    "tests/spark/test_connect.py": 900,
    "tests/spark/test_registry.py": 900,
    "tests/spark/test_conf.py": 900,
    "tests/spark/test_secured.py": 900,
    # All orders of steps, and thousands of histories.
    "tests/simulation/": 900,
}
"""How many seconds tests may take, by the beginning of their path, where pyproject.toml's limit is too short on a busy machine.

That limit is above the 180 s for which a test waits for a condition: the wait should fail, with what it waits for.
"""


DOWNLOADS_S = 1500
"""The same for tests with these marks: each downloads a Kafka, or builds and installs wheels."""


KINDS = (("tests/spark/", "tests/simulation/"), ("tests/kafka/",), ("",))
"""How the paths begin of tests that take the processor all the time, that mostly wait for a broker, and of the others."""

LONG_FILES = (
    *(
        f"tests/spark/test_{name}.py"
        for name in (
            "page_programs",
            "demo",
            "copy_topic",
            "connect",
            "submit",
            "secured",
            "registry",
            "sink_cancelled",
            "shared_groups",
        )
    ),
    *(f"tests/kafka/brokers/test_{name}.py" for name in ("advertised", "security", "idle_connections")),
    *(f"tests/kafka/query/test_{name}.py" for name in ("reconnecting", "broker_down")),
    *("tests/kafka/group/test_lost_answers.py", "tests/kafka/sink/test_coordinators.py"),
    *("tests/simulation/test_histories.py", "tests/simulation/sink/test_sink.py"),
)
"""Files with few tests that take a minute or more. At the end a single process would run them."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the files, and give long tests more time, unless all have a limit.

    The files of each kind begin with those that take long; then come those with many tests. The kinds alternate: if those that
    wait came one after the other, the processor would be idle.
    """
    tests = Counter(item.nodeid.partition("::")[0] for item in items)
    kinds: list[list[str]] = [[] for _ in KINDS]
    for file in sorted(tests, key=lambda file: (not file.startswith(LONG_FILES), -tests[file])):
        next(files for files, folders in zip(kinds, KINDS, strict=True) if file.startswith(folders)).append(file)
    places = {file: number / len(files) for files in kinds for number, file in enumerate(files)}
    items.sort(key=lambda item: places[item.nodeid.partition("::")[0]])
    if config.getoption("timeout") is not None:
        return
    for item in items:
        limits_s = [limit_s for path, limit_s in LONGER_S.items() if item.nodeid.startswith(path)]
        if item.get_closest_marker("versions") or item.get_closest_marker("wheels"):
            limits_s.append(DOWNLOADS_S)
        for limit_s in limits_s:
            item.add_marker(pytest.mark.timeout(limit_s))


@pytest.fixture(autouse=True)
def clients_and_tokens_of_its_own(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let no test use what an earlier one has kept. Clients whose broker has stopped would fill its log."""
    monkeypatch.setattr(oauth_callback, "_SHARED", {})
    yield
    pool().close_kept()


# Short sessions under KIP-848: the broker sets them for all members.
SHORT_SESSIONS = {
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "200",
}

# A machine that stands still for some seconds must not fence the broker: with no other to name, it tells clients that there is no
# controller, and an AdminClient that heard this waits for one, and does not ask again. Nobody kills a broker that tests share.
NOT_FENCED = {"broker.session.timeout.ms": "120000"}

# A broker that does nothing takes a third less of the processor.
SELDOM = {"broker.heartbeat.interval.ms": "5000", "metadata.max.idle.interval.ms": "0"}

# A transaction that takes too long is ended within a second, not within ten.
ENDS_TRANSACTIONS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}

# Records with old timestamps are not deleted, and neither are groups without offsets that have no members just now.
KEEP_ALL = {"log.retention.ms": "-1", "offsets.retention.check.interval.ms": "86400000"}


@pytest.fixture(autouse=True)
def errors_keep_their_traceback() -> Iterator[None]:
    """Undo what a refused option does to its process, which ends with the error if it is Spark's."""
    yield
    os.environ.pop(HIDE_TRACEBACK, None)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Start a single node of the newest Kafka, shared by all tests: they use topics and groups of their own."""
    with Cluster(config={**SHORT_SESSIONS, **NOT_FENCED, **SELDOM, **ENDS_TRANSACTIONS, **KEEP_ALL}) as running:
        yield running


@pytest.fixture(scope="session")
def admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers})


_numbers = itertools.count(1)


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> MakeTopic:
    def make_topic(partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        words = "".join(char if char.isalnum() else "-" for char in request.node.name)
        name = f"{words[:60]}-{next(_numbers)}"
        cluster.create_topic(name, partitions, config)
        return name

    return make_topic


@pytest.fixture(scope="session")
def produce(cluster: Cluster) -> Produce:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0, **IN_ORDER})

    def produce(topic: str, records: Sequence[Record], partition: int | None = None) -> None:
        errors: list[KafkaError] = []

        def report(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                errors.append(error)

        for key, value in records:
            send(producer, topic, value, key, -1 if partition is None else partition, on_delivery=report)
            producer.poll(0)
        left = producer.flush(60)
        assert not errors, errors
        assert left == 0, f"{left} records have no answer after 60 s"

    return produce


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Start a broker with TLS, SASL and ACLs, shared by all tests that need one."""
    from tests.support.secured import secured_broker

    with secured_broker(tmp_path_factory.mktemp("secured"), NOT_FENCED | SELDOM) as running:
        yield running


@pytest.fixture
def secured_topic(secured: Secured) -> Callable[[str], str]:
    """Return a function that creates a topic with ten records in one partition; the name begins with the given prefix."""

    def make_topic(prefix: str) -> str:
        name = f"{prefix}{next(_numbers)}"
        secured.cluster.create_topic(name)
        producer = Producer({"bootstrap.servers": secured.cluster.bootstrap_servers, "linger.ms": 0})
        for number in range(10):
            producer.produce(name, str(number))
        assert producer.flush(60) == 0
        return name

    return make_topic
