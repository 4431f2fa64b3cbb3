"""`groupkafka leave` against a real broker; tests/spark/test_leave.py follows the page with Spark's own source."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from devtools.broker import Cluster
from spark_groupsource.brokers.group_admin import GroupAdmin
from spark_groupsource.cli.main import main
from spark_groupsource.handoff.commit_record import CommitRecord, OpenRange
from tests.kafka.conftest import Filled
from tests.support.consumers import commit, commit_as_another_client, joined
from tests.support.group_offsets import committed_offsets

Leave = Callable[..., Result]

CLAIMED = CommitRecord(stream="alpha", logged=7, done=6, next=9, open=(OpenRange(6, 9),))


def finished(topic_id: str) -> CommitRecord:
    return CommitRecord(stream="alpha", logged=7, done=7, next=4, topic_id=topic_id)


@pytest.fixture
def leave(cluster: Cluster) -> Leave:
    def run_command(group: str, *more: str) -> Result:
        return CliRunner().invoke(main, ["leave", "--bootstrap-server", cluster.bootstrap_servers, "--group", group, *more])

    return run_command


def test_the_last_line_is_what_sparks_own_source_takes_and_nothing_is_changed(
    filled: Filled, leave: Leave, cluster: Cluster
) -> None:
    name, other = filled(2), filled()
    group = f"group-of-{name}"
    commit_as_another_client(cluster, group, name, 4)
    commit_as_another_client(cluster, group, other, 7)
    left = leave(group)
    assert left.exit_code == 0, left.output
    starts = {name: {"0": 4, "1": -2}, other: {"0": 7}}
    assert json.loads(left.output.splitlines()[-1]) == starts
    assert f"read from the beginning: {name}-1" in left.output
    one = leave(group, "--topic", other, "--json")
    assert json.loads(one.output) == {
        "group": group,
        "startingOffsets": {other: {"0": 7}},
        "without_commit": [],
    }
    assert committed_offsets(cluster, group, name) == {0: 4}


def test_a_group_that_runs_is_refused(filled: Filled, leave: Leave, cluster: Cluster) -> None:
    name = filled()
    with joined(cluster, f"group-of-{name}", name, 1) as consumer:
        commit(consumer, name, 0, 4)
        busy = leave(f"group-of-{name}")
    assert busy.exit_code == 1
    assert "Stop the group's queries" in busy.output


@pytest.mark.parametrize(
    ("offset", "metadata", "said"),
    [
        (CLAIMED.offset, CLAIMED.metadata(), "{}-0 [6, 9) 3 offsets: stream alpha"),
        (2, '{"v":5,"s":"alpha"}', "another version of spark_groupsource wrote it in format 5, but this version reads format 4"),
    ],
    ids=["claims", "a record of another version"],
)
def test_what_is_claimed_or_may_be_is_refused_with_what_to_do(
    filled: Filled, leave: Leave, cluster: Cluster, offset: int, metadata: str, said: str
) -> None:
    name, other = filled(), filled()
    group = f"group-of-{name}"
    commit_as_another_client(cluster, group, name, offset, metadata)
    commit_as_another_client(cluster, group, other, 1)
    refused = leave(group)
    assert refused.exit_code == 1
    assert said.format(name) in refused.output
    assert "startingOffsets" not in refused.output
    assert leave(group, "--topic", other).exit_code == (0 if metadata == CLAIMED.metadata() else 1)


def test_offsets_of_another_log_and_topics_without_a_commit_are_refused(filled: Filled, leave: Leave, cluster: Cluster) -> None:
    name = filled()
    group = f"group-of-{name}"
    commit_as_another_client(cluster, group, name, 11)
    ahead = leave(group)
    assert ahead.exit_code == 1
    assert f"{name}-0: offset 11, the log ends at 10" in ahead.output
    of_now = finished(topic_id=GroupAdmin({"bootstrap.servers": cluster.bootstrap_servers}).topic_id(name))
    commit_as_another_client(cluster, group, name, of_now.offset, of_now.metadata())
    assert leave(group).exit_code == 0
    earlier = finished(topic_id="a" * 22)
    commit_as_another_client(cluster, group, name, earlier.offset, earlier.metadata())
    recreated = leave(group)
    assert recreated.exit_code == 1
    assert f"{name}-0: offset 4 is from another topic with this name" in recreated.output
    assert "startingOffsets" not in recreated.output
    missing = leave(group, "--topic", "no-such-topic")
    assert missing.exit_code == 1
    assert "has no committed offsets in no-such-topic" in missing.output
    assert f"(--topic). Its topics are {name}." in missing.output
