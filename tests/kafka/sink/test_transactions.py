"""`groupkafka transactions`: what a transaction that was left open holds back, who has it, and that what ends it ends it."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import KafkaException, Producer

from devtools.broker import Cluster
from spark_groupsource.cli.main import main
from spark_groupsource.sink.token import Mark, Opener
from tests.conftest import MakeTopic
from tests.kafka.cli.check.conftest import Checked
from tests.support.committed import read_committed
from tests.support.consumers import commit_as_another_client
from tests.support.secured import Secured
from tests.support.sink_queries import LATER_RUN, RUN, Query
from tests.support.spark_sinks import hidden
from tests.support.waiting import until

ROWS = 5


def look(cluster: Cluster, topic: str | None, *more: str) -> Result:
    assert topic is not None
    return CliRunner().invoke(main, ["transactions", "--bootstrap-server", cluster.bootstrap_servers, "--topic", topic, *more])


def shown(cluster: Cluster, topic: str | None, *more: str) -> str:
    result = look(cluster, topic, *more)
    assert result.exit_code == 0, result.output
    return result.output


@contextmanager
def left_open(cluster: Cluster, transactional_id: str, topic: str | None) -> Iterator[Producer]:
    """A producer that has written rows and does not commit. At the end its transaction is aborted, unless somebody took it."""
    assert topic is not None
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": transactional_id, "log_level": 0})
    producer.init_transactions(60)
    producer.begin_transaction()
    for number in range(ROWS):
        producer.produce(topic, str(number), partition=0)
    assert producer.flush(60) == 0
    yield producer
    with suppress(KafkaException):  # a restart has fenced it
        producer.abort_transaction(60)


def until_visible(query: Query) -> None:
    """Brokers end a transaction on one partition after the other, after they have answered."""
    until(lambda: not any(hidden(query.cluster, query.topic or "").values()), "everything that is written is visible")


@pytest.fixture
def query(cluster: Cluster, topic: MakeTopic) -> Query:
    """A query that has finished micro-batch 0 in its task 0, and marked its task 2 in a later run."""
    query = Query(cluster, topic(2))
    query.run(0, [["a"]], run=RUN)
    until_visible(query)
    with closing(query.tokens) as tokens:
        tokens.commit_mark(2, LATER_RUN)
    return query


def test_nothing_that_is_held_back_is_one_line(cluster: Cluster, query: Query) -> None:
    assert shown(cluster, query.topic) == f"topic {query.topic}: no open transaction hides any record in its 2 partitions.\n"
    assert json.loads(shown(cluster, query.topic, "--json"))["candidates"] == []


def test_an_open_transaction_is_shown_with_its_owner_until_it_ends(cluster: Cluster, query: Query) -> None:
    names = query.names
    with left_open(cluster, names.task(2), query.topic):
        output = shown(cluster, query.topic)
        assert f"topic {query.topic}: {ROWS} offsets have been written, but are not visible" in output
        of_task = f"    query {names.query}, run {LATER_RUN}, task 2: no finished micro-batch is known\n"
        assert f"  {names.task(2)}\n{of_task}    process {os.getpid()} on {socket.gethostname()}, since 20" in output
        assert f"query {names.query}, run {RUN}, task 0: micro-batch 0 is finished" in output
        assert f"kafka-transactions.sh --bootstrap-server {cluster.bootstrap_servers} list" in output
        assert "restart it from its checkpoint" in output
        assert "120 s by default, and 900 s for a task that Spark has retried" in output
    until_visible(query)
    assert names.query not in shown(cluster, query.topic)


def test_json_has_partitions_and_candidates(cluster: Cluster, query: Query) -> None:
    with left_open(cluster, query.names.task(2), query.topic):
        found = json.loads(shown(cluster, query.topic, "--prefix", query.names.prefix, "--json"))
    assert [(one["partition"], one["not_visible"], one["end"] - one["stable"]) for one in found["partitions"]] == [
        (0, ROWS, ROWS),
        (1, 0, 0),
    ]
    assert found["not_visible"] == ROWS
    mine = {one["task"]: one for one in found["candidates"] if one["query"] == query.names.query}
    since = mine[2].pop("since")
    assert since.startswith("20")
    assert mine[2] == {
        "transactional_id": query.names.task(2),
        "prefix": "q",
        "query": query.names.query,
        "task": 2,
        "run": LATER_RUN,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "batch": None,
        "topic": query.topic,
    }
    assert mine[0]["batch"] == 0
    assert {one["topic"] for one in found["candidates"][:2]} == {query.topic}


def test_a_restart_on_the_checkpoint_ends_it_as_the_command_says(cluster: Cluster, query: Query) -> None:
    with left_open(cluster, query.names.task(2), query.topic):
        assert json.loads(shown(cluster, query.topic, "--json"))["not_visible"] == ROWS
        query.run(1, [["b"]], run=LATER_RUN.replace("2", "3"))
        until_visible(query)
        assert json.loads(shown(cluster, query.topic, "--json"))["not_visible"] == 0
        assert read_committed(cluster, query.topic) == ["a", "b"]


@pytest.mark.parametrize(
    "metadata",
    [
        "x",
        '{"v":4,"q":"QUERY","run":"","open":{"at":1,"host":"\\u001b[2J","pid":1}}',
        '{"v":5,"q":"QUERY","run":"","open":{"at":1,"host":"h","pid":1,"more":2}}',
    ],
)
def test_garbage_is_named_and_never_shown(cluster: Cluster, query: Query, metadata: str) -> None:
    names = query.names
    assert query.topic is not None
    metadata = metadata.replace("QUERY", names.query)
    commit_as_another_client(cluster, names.open(7), query.topic, 1, metadata)
    commit_as_another_client(cluster, names.task(2), query.topic, 3, metadata)
    with left_open(cluster, f"another-{names.query}", query.topic):
        output = shown(cluster, query.topic)
        found = json.loads(shown(cluster, query.topic, "--json"))
    assert "\x1b" not in output
    assert f"group {names.open(7)}: written by another client or another version of this package" in output
    assert {names.open(7), names.task(2)} <= set(found["unreadable"])
    assert {one["task"]: one["batch"] for one in found["candidates"] if one["query"] == names.query} == {0: 0, 2: None}


def test_names_that_could_steer_a_terminal_are_escaped(cluster: Cluster, query: Query) -> None:
    names = query.names._replace(prefix="\x1b[2J")
    assert query.topic is not None
    mark = Mark(names.query, "", Opener(1, "host", 1))
    commit_as_another_client(cluster, names.open(1), query.topic, 1, mark.metadata())
    commit_as_another_client(cluster, names.open(2), query.topic, 1, "x")
    with left_open(cluster, f"another-{names.query}", query.topic):
        output = shown(cluster, query.topic)
    assert f"  {names.task(1)}\n".replace("\x1b", "\\x1b") in output
    assert f"group {names.open(2)}:".replace("\x1b", "\\x1b") in output
    assert "\x1b" not in output


def login(secured: Secured, folder: Path) -> tuple[str, ...]:
    lines = (
        f"{name.removeprefix('kafka.')}={value}".replace("\\", "\\\\") for name, value in secured.login("SCRAM-SHA-512").items()
    )
    file = folder / "client.properties"
    file.write_text("\n".join(lines))
    return "--bootstrap-server", secured.cluster.address("SASL_SSL"), "--command-config", str(file)


def test_a_topic_that_the_user_may_not_describe_is_an_error_that_names_the_acl(
    secured: Secured, secured_topic: Callable[[str], str], tmp_path: Path
) -> None:
    refused = look(secured.cluster, secured_topic("unseen-"), *login(secured, tmp_path))
    assert refused.exit_code == 1
    assert "DESCRIBE" in refused.output


def test_a_user_who_may_not_see_the_groups_sees_the_counts_and_why_there_are_no_names(
    secured: Secured, secured_topic: Callable[[str], str], tmp_path: Path
) -> None:
    query = Query(secured.cluster, secured_topic("seen-"), transactionalIdPrefix="hidden")
    with closing(query.tokens) as tokens:
        tokens.commit_mark(0, RUN)
    with left_open(secured.cluster, query.names.task(0), query.topic):
        # Other tests have queries there whose groups this user may see.
        output = shown(secured.cluster, query.topic, "--prefix", "hidden", *login(secured, tmp_path))
        assert query.names.task(0) in shown(secured.cluster, query.topic)
    assert f"{ROWS} offsets have been written" in output
    assert "this user may not describe" in output
    assert query.names.query not in output


@pytest.mark.parametrize("topic", ["no-such-topic", "no\x1bsuch topic"])
def test_a_topic_that_is_not_there_is_an_error(cluster: Cluster, topic: str) -> None:
    refused = look(cluster, topic)
    assert refused.exit_code == 1
    assert "such" in refused.output
    assert "\x1b" not in refused.output


def test_check_warns_of_what_is_held_back_and_says_what_shows_by_whom(cluster: Cluster, query: Query, tmp_path: Path) -> None:
    file = tmp_path / "sink.properties"
    file.write_text(f"kafka.bootstrap.servers={cluster.bootstrap_servers}\ntopic={query.topic}\ntransactionalIdPrefix=q\n")

    def check() -> Checked:
        result = CliRunner().invoke(main, ["check", "--sink", "--conf", str(file)])
        return Checked(result.exit_code, result.output)

    assert check().level("isolation") == "ok"
    with left_open(cluster, query.names.task(2), query.topic):
        checked = check()
    assert checked.errors == []
    ((level, _, text),) = checked.of("isolation")
    assert level == "warning"
    assert f"{query.topic}: open transactions block {ROWS} offsets, in {query.topic}-0." in text
    assert f"groupkafka transactions --topic {query.topic}" in text
    assert check().level("isolation") == "ok"
