"""What development versions before 0.1.0 left in a group: it is refused, and what the error advises is done to the letter."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from devtools.broker import Cluster
from spark_groupsource.brokers.group_admin import GroupAdmin
from spark_groupsource.errors import CommitRecordUnreadable
from spark_groupsource.handoff.commit_record import OtherFormat
from spark_groupsource.partition import TopicPartition
from tests.kafka.conftest import Filled, MakeQuery
from tests.support.consumers import commit_as_another_client
from tests.support.group_offsets import committed_offsets

FINISHED = {"v": 2, "s": "0f3c9d2a7b615e48", "n": 41, "done": 41, "next": 4, "open": [], "owed": [], "m": "hJ4Kx0_Zt-8"}
CLAIMED = FINISHED | {"done": 40, "next": 7, "open": [[4, 7]]}
OWED = {"v": 1, "s": "0f3c9d2a7b615e48", "n": 41, "done": 41, "next": 7, "open": [], "owed": [["a91d0c77e2b4f635", 7, 4, 5]]}


@pytest.mark.parametrize("left", [FINISHED, CLAIMED, OWED], ids=["nothing claimed", "claimed", "owed"])
def test_a_query_stops_at_the_record_and_a_new_checkpoint_goes_on_at_its_offset(
    filled: Filled, query: MakeQuery, cluster: Cluster, left: dict[str, object]
) -> None:
    """The earlier version has read [0, 4). What it had claimed above may be in the output, and is read again: never skipped."""
    name = filled()
    group = f"group-of-{name}"
    commit_as_another_client(cluster, group, name, 4, json.dumps(left, separators=(",", ":")))
    refused = query(name)
    with pytest.raises(CommitRecordUnreadable, match=r"before 0\.1\.0") as error:
        refused.plan()
    refused.cycle.stop()
    assert committed_offsets(cluster, group, name) == {0: 4}
    keep_offsets(cluster, group, str(error.value))
    assert committed_offsets(cluster, group, name) == {0: 4}
    assert query(name).run_batch() == {0: (4, 10)}


def test_a_query_that_runs_stops_when_an_earlier_version_takes_its_partition(
    filled: Filled, query: MakeQuery, cluster: Cluster
) -> None:
    """Its restart may be owed what the other one has made of its claim, so it does not go on past that record."""
    name = filled()
    a = query(name)
    assert a.plan()
    a.cycle.stop()
    commit_as_another_client(cluster, f"group-of-{name}", name, 4, json.dumps(CLAIMED, separators=(",", ":")))
    a.restart()
    with pytest.raises(CommitRecordUnreadable, match=r"before 0\.1\.0"):
        a.claim()
    assert committed_offsets(cluster, f"group-of-{name}", name) == {0: 4}


def test_what_looks_like_an_earlier_record_is_not_taken_for_another_clients(filled: Filled, cluster: Cluster) -> None:
    """Anybody can write it, and stop the query with it. But nobody can make it read past claims that may be there."""
    name = filled()
    commit_as_another_client(cluster, f"group-of-{name}", name, 7, '{"v":1,"s":"evil","n":99}')
    found = GroupAdmin({"bootstrap.servers": cluster.bootstrap_servers}).commits(f"group-of-{name}")
    assert found == {TopicPartition(name, 0): OtherFormat(7, 1, "evil")}


def keep_offsets(cluster: Cluster, group: str, error: str) -> None:
    """Run the command of the error, with this cluster and this group."""
    (arguments,) = re.findall(r"`kafka-consumer-groups\.sh ([^`]+)`", error)
    filled_in = arguments.replace("SERVERS", cluster.bootstrap_servers).replace("GROUP", group)
    argv = cluster.tool("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", *filled_in.split())
    done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=180)
    assert done.stderr == ""
