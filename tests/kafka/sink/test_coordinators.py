"""The sink while coordinators move and brokers die: three brokers, and clients that stay."""

from __future__ import annotations

import re
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]

from devtools.broker import Node
from devtools.broker.config import HOST
from devtools.broker.ready import quiet_client
from spark_groupsource.brokers import group_admin
from spark_groupsource.brokers.group_offsets import GroupOffsets
from spark_groupsource.errors import BrokerUnavailable
from spark_groupsource.sink.names import token_group
from spark_groupsource.sink.token_store import TokenStore
from tests.harness.brokers import Brokers, java_hash
from tests.support.committed import read_committed
from tests.support.sink_queries import LATER_RUN, Query
from tests.support.waiting import in_background, until


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    with Brokers(3, None) as started:
        yield started


@pytest.fixture
def query(brokers: Brokers) -> Query:
    name = f"out-{uuid.uuid4().hex[:8]}"
    brokers.create_topic(name, 2)
    return Query(brokers, name)


def test_a_client_that_stays_follows_the_coordinator_of_its_group(brokers: Brokers, query: Query, tmp_path: Path) -> None:
    assert query.topic is not None
    offsets = GroupOffsets(query.settings().requests, query.names.driver)
    offsets.commit(query.topic, 1, "one")
    for number in (2, 3):
        brokers.move_coordinator(query.names.driver, tmp_path)
        assert offsets.read([query.topic]) == {query.topic: (number - 1, "one" if number == 2 else "2")}
        offsets.commit(query.topic, number, str(number))
    assert offsets.read([query.topic]) == {query.topic: (3, "3")}
    offsets.close()


def test_what_the_query_wrote_elsewhere_is_found_while_a_broker_is_silent(
    brokers: Brokers, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its groups are not overlooked, even if the other brokers leave it out already and do not list its groups yet."""
    for task in range(0, 9, 2):
        query.write(0, ["a"], task=task)
    node = brokers.coordinator(query.names.task(8))
    admin = group_admin.GroupAdmin(query.settings().requests)
    looks = count_looks(monkeypatch)
    assert [name for name in admin.groups(query.names.query) if token_group(name) is not None] == [
        query.names.task(task) for task in range(0, 9, 2)
    ]
    assert looks
    assert all(looks)
    node.pause()
    try:
        with monkeypatch.context() as soon:
            soon.setattr(group_admin, "REQUEST_TIMEOUT_S", 3.0)
            with pytest.raises(BrokerUnavailable):
                admin.groups(query.names.query)
        brokers.until_moved(query.names.task(8), node)
        looks[:] = [False]
        tokens = TokenStore(query.settings().requests, query.names._replace(prefix="another"), query.topic)
        (place,) = tokens.list_elsewhere()
        assert sorted(place.tasks) == [0, 2, 4, 6, 8]
        assert looks[:3] == [False, False, True]
        tokens.close()
    finally:
        node.resume()


def count_looks(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return a list that gets an item for each list of groups. Put False into it, and the next list lacks all groups."""
    looks: list[bool] = []
    listed = group_admin.GroupAdmin.groups

    def look(admin: group_admin.GroupAdmin, part: str) -> list[str]:
        found = listed(admin, part)
        looks.append(looks != [False])
        return found if looks[-1] else []

    monkeypatch.setattr(group_admin.GroupAdmin, "groups", look)
    return looks


@pytest.mark.long
def test_groups_that_have_no_coordinator_are_not_overlooked(brokers: Brokers, query: Query, tmp_path: Path) -> None:
    query.write(0, ["a"])
    controller = active_controller(brokers)
    node = next(node for node in brokers.nodes if node.id != controller)
    brokers.keep_on(query.names.task(0), [node], tmp_path)
    tokens = TokenStore(query.settings().requests, query.names._replace(prefix="another"), query.topic)

    def is_found() -> bool:
        return [sorted(place.tasks) for place in tokens.list_elsewhere()] == [[0]]

    until(is_found, "the new coordinator has its group")
    node.kill()
    try:
        brokers.until_leaderless(query.names.task(0))
        with pytest.raises(BrokerUnavailable, match="of __consumer_offsets has no leader"):
            group_admin.GroupAdmin(query.settings().requests).groups_that_move_too(query.names.query, [])
    finally:
        node.start()
    until(is_found, "the coordinator that is back has its group")
    tokens.close()
    brokers.keep_on(query.names.task(0), brokers.nodes, tmp_path)


@pytest.mark.long
def test_partitions_that_the_coordinator_does_not_know_yet_are_waited_for(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka takes its answer for final, since it refuses the partitions that it knows along with the others."""
    name = f"out-{uuid.uuid4().hex[:8]}"
    brokers.create_topic(name, 3)
    query = Query(brokers, name)
    query.write(0, ["first"])  # makes the topic of the transactions
    written = [f"{number:05}" for number in range(64 * 30)]
    mark = TokenStore.commit_mark
    nodes: list[Node] = []
    resumed: list[threading.Thread] = []
    partitions = [3]

    def then_partitions_are_added(tokens: TokenStore, *arguments: Any) -> None:
        """Its next step is the first row, for which it asks for the topic's partitions."""
        mark(tokens, *arguments)
        if nodes:
            node = nodes.pop()
            node.pause()
            client = quiet_client(",".join(f"{HOST}:{one.port}" for one in brokers.nodes if one is not node))
            partitions.append(len(client.list_topics(name).topics[name].partitions) + 9)
            client.create_partitions([NewPartitions(name, partitions[-1])])[name].result()
            resumed.append(in_background(partial(resume_later, node)))

    monkeypatch.setattr(TokenStore, "commit_mark", then_partitions_are_added)
    controller = active_controller(brokers)
    for task in range(1, 4):
        node = transaction_coordinator(brokers, query.names.task(task))
        others = ",".join(f"{HOST}:{one.port}" for one in brokers.nodes if one is not node)
        nodes[:] = [node] if node.id != controller else []
        own = query.renamed(**{"kafka.bootstrap.servers": others})
        assert own.write(0, written, task).written == len(written)
        for one in resumed:
            one.join()

    def all_know_them() -> bool:
        clients = [quiet_client(f"{HOST}:{one.port}") for one in brokers.nodes]
        return all(len(client.list_topics(name, timeout=60).topics[name].partitions) == partitions[-1] for client in clients)

    until(all_know_them, "each broker that is read from knows the partitions")
    assert read_committed(brokers, name) == sorted([*written * 3, "first"])


def resume_later(node: Node) -> None:
    """Let it go on when the task has asked the other brokers for the partitions, and the node for the transaction."""
    time.sleep(1.5)
    node.resume()


def active_controller(brokers: Brokers) -> int:
    """Return the id of the node that the other controllers follow."""
    tool = brokers.tool("org.apache.kafka.tools.MetadataQuorumCommand", "--bootstrap-server", brokers.bootstrap_servers)
    said = subprocess.run([*tool, "describe", "--status"], check=True, capture_output=True, text=True, timeout=120).stdout
    (leader,) = re.findall(r"LeaderId:\s+(\d+)", said)
    return int(leader)


def transaction_coordinator(brokers: Brokers, transactional_id: str) -> Node:
    """Return the node that coordinates the transactions of this id now."""
    partitions = brokers.client().list_topics("__transaction_state", timeout=60).topics["__transaction_state"].partitions
    leader = partitions[abs(java_hash(transactional_id)) % len(partitions)].leader
    return next(node for node in brokers.nodes if node.id == leader)


def test_the_coordinator_of_a_token_and_of_a_transaction_dies_between_and_within_tasks(brokers: Brokers, query: Query) -> None:
    query.write(0, ["a"])
    query.finish(0, 1, 1)
    node = brokers.coordinator(query.names.task(0))

    def rows() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"value": ["b"]})
        node.kill()
        yield pa.RecordBatch.from_pydict({"value": ["c"]})

    written = query.write_all(1, rows())
    assert written.written == 2
    assert query.write(1, ["b", "c"], run=LATER_RUN).skipped == 2
    query.finish(1, 1, 2, run=LATER_RUN)
    node.start()
    assert query.write(2, ["d"], run=LATER_RUN).written == 1
    assert read_committed(brokers, query.topic) == ["a", "b", "c", "d"]
