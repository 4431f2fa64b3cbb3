"""`groupkafka claims` and `groupkafka reset-offsets`, against a real broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timezone

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer

from devtools.broker import Cluster
from spark_groupsource.brokers.group_admin import GroupAdmin
from spark_groupsource.cli.main import main
from spark_groupsource.cli.reset_offsets import execute_reset, plan_reset
from spark_groupsource.errors import GroupActive, OffsetsInTheWay
from spark_groupsource.handoff.commit_record import CommitRecord, OpenRange, OwedRange, mark_of
from spark_groupsource.partition import TopicPartition
from tests.conftest import MakeTopic, Produce
from tests.kafka.conftest import Filled, MakeQuery
from tests.support.consumers import commit, commit_as_another_client, joined
from tests.support.waiting import in_background, until

Run = Callable[..., Result]

HELD = CommitRecord(
    stream="alpha",
    logged=7,
    done=6,
    next=9,
    open=(OpenRange(6, 9),),
    owed=(OwedRange("beta", 3, 2, 4, 1_763_744_384), OwedRange("gamma", 1, 4, 5)),
    claimed_at=1_763_744_390,
)

OTHER_FORMATS = {
    5: '{"v":5,"s":"alpha","held":[[2,4]]}',
    2: '{"v":2,"s":"alpha","n":1,"done":1,"next":4,"open":[],"owed":[["b",1,2,4]]}',
}


@pytest.fixture
def run(cluster: Cluster) -> Run:
    def run_command(command: str, topic: str, *more: str) -> Result:
        arguments = [command, "--bootstrap-server", cluster.bootstrap_servers, "--group", f"group-of-{topic}", *more]
        return CliRunner().invoke(main, arguments)

    return run_command


@pytest.fixture
def stopped(cluster: Cluster, topic: MakeTopic, produce: Produce) -> Callable[..., str]:
    """Makes a topic with ten records in partition 0, and a group that has committed for it and has no members."""

    def make(offset: int, metadata: str = "", partitions: int = 1) -> str:
        name = topic(partitions=partitions)
        produce(name, [(None, "x")] * 10, 0)
        commit_as_another_client(cluster, f"group-of-{name}", name, offset, metadata)
        return name

    return make


def cells(output: str, topic: str) -> list[list[str]]:
    return [line.split() for line in output.splitlines() if line.startswith(f"{topic} ")]


def test_each_claimed_range_is_listed_with_its_stream_and_since_when(stopped: Callable[..., str], run: Run) -> None:
    name = stopped(HELD.offset, HELD.metadata())
    shown = run("claims", name)
    assert shown.exit_code == 0, shown.output
    owed, unknown, left = cells(shown.output, name)
    assert owed[:9] == [name, "0", "[2,", "4)", "2", "held", "-", "beta", "2025-11-21T16:59:44Z"]
    assert owed[-1] == "ago)"
    assert unknown == [name, "0", "[4,", "5)", "1", "held", "-", "gamma", "not", "known"]
    assert left[:9] == [name, "0", "[6,", "9)", "3", "held", "-", "alpha", "2025-11-21T16:59:50Z"]
    offsets = "0 offsets in flight, 6 held"
    assert f"group group-of-{name}, empty: 3 ranges claimed but not confirmed, {offsets}" in shown.output
    assert f"{name}-0 [2, 4): 1 finished record above it counts as lag" in shown.output.splitlines()
    assert "in flight:" not in shown.output, "without members nothing is"
    for what_can_be_done in (
        "is not running, because the group has no members",
        "(alpha or beta or gamma) from its checkpoint",
        "grep -rl STREAM CHECKPOINT/offsets",
        "heldClaims=reread",
        "will be duplicated",
        "--drop-claims",
    ):
        assert what_can_be_done in shown.output


def test_what_the_member_with_the_partition_has_claimed_is_in_flight(topic: MakeTopic, cluster: Cluster, run: Run) -> None:
    name = topic()
    with joined(cluster, f"group-of-{name}", name, 1, client_id="busy") as consumer:
        (member,) = GroupAdmin({"bootstrap.servers": cluster.bootstrap_servers}).describe(f"group-of-{name}").members
        record = HELD.model_copy(update={"member": mark_of(member.member_id)})
        commit(consumer, name, 0, record.offset, record.metadata())
        shown = run("claims", name)
        as_json = json.loads(run("claims", name, "--json").output)
    assert cells(shown.output, name)[2][:9] == [name, "0", "[6,", "9)", "3", "in", "flight", "busy@127.0.0.1", "alpha"]
    assert "3 ranges claimed but not confirmed, 3 offsets in flight, 3 held" in shown.output
    assert "in flight: a running query is processing the range" in shown.output
    assert "(beta or gamma) from its checkpoint" in shown.output, "alpha is running"
    assert [(claim["kind"], claim["member_id"]) for claim in as_json["claims"]] == [
        ("held", None),
        ("held", None),
        ("in flight", member.member_id),
    ]


def test_a_range_of_a_partition_that_drains_is_in_flight(filled: Filled, query: MakeQuery, run: Run) -> None:
    """The coordinator names no owner of it then. Advice to restart its query would start a second one."""
    name = filled(partitions=2)
    first, second = query(name, **{"handoff.drainTimeout": "60s"}), query(name)
    first.until_planning(2)
    assert first.plan()
    first.claim()
    asked = in_background(lambda: second.until_planning(1))
    until(lambda: first.session.assignment.draining, "a partition drains")
    until(lambda: json.loads(run("claims", name, "--json").output)["state"] == "stable", "the rebalance has ended")
    shown = json.loads(run("claims", name, "--json").output)
    assert (shown["in_flight"], shown["held"]) == (20, 0)
    first.finish()
    first.plan()
    asked.join()


def test_a_reset_is_shown_first_and_done_only_on_execute(stopped: Callable[..., str], run: Run) -> None:
    name = stopped(4, partitions=2)
    shown = run("reset-offsets", name, "--topic", name, "--to-earliest")
    assert shown.exit_code == 0, shown.output
    assert cells(shown.output, name) == [[name, "0", "4", "0", "-4"], [name, "1", "-", "0", "-"]]
    assert "dry run: nothing was changed" in shown.output
    assert cells(run("describe", name).output, name)[0][2] == "4"
    done = run("reset-offsets", name, "--topic", name, "--to-earliest", "--execute")
    assert done.exit_code == 0, done.output
    assert [row[2] for row in cells(run("describe", name).output, name)] == ["0", "0"]


def test_only_the_partitions_that_were_named_are_reset_as_far_as_there_are_records(stopped: Callable[..., str], run: Run) -> None:
    name = stopped(4, partitions=3)

    def rows(*to: str) -> list[list[str]]:
        return cells(run("reset-offsets", name, "--topic", f"{name}:0,2", *to).output, name)

    assert rows("--to-latest") == [[name, "0", "4", "10", "+6"], [name, "2", "-", "0", "-"]]
    assert rows("--to-offset", "7") == [[name, "0", "4", "7", "+3"], [name, "2", "-", "0", "-"]]
    assert rows("--to-offset", "99") == rows("--to-latest")


def test_a_time_means_the_first_record_of_that_time_or_later(topic: MakeTopic, cluster: Cluster, run: Run) -> None:
    name = topic()
    commit_as_another_client(cluster, f"group-of-{name}", name, 0)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    first = datetime(2026, 1, 1, tzinfo=timezone.utc)
    for hour in range(4):
        producer.produce(name, b"x", timestamp=int(first.timestamp() * 1000) + hour * 3_600_000)
    assert producer.flush(30) == 0

    def new(text: str) -> str:
        return cells(run("reset-offsets", name, "--topic", name, "--to-datetime", text).output, name)[0][3]

    assert new("2026-01-01T02:00:00") == "2"
    assert new("2026-01-01T01:30:00.000Z") == "2"
    assert new("2026-01-01T02:00:00+01:00") == "1"
    assert new("2030-01-01T00:00:00Z") == "4", "later than every record: the end"


def test_as_json_claims_and_resets_are_one_object_each(stopped: Callable[..., str], run: Run) -> None:
    name = stopped(HELD.offset, HELD.metadata())
    shown = json.loads(run("claims", name, "--json").output)
    assert (shown["state"], shown["in_flight"], shown["held"]) == ("empty", 0, 6)
    (held,) = shown["lowest_claims"]
    assert (held["topic"], held["partition"], held["kind"], held["start"], held["finished_lag"]) == (name, 0, "held", 2, 1)
    assert [(one["kind"], one["start"], one["end"], one["stream"], one["since"]) for one in shown["claims"]] == [
        ("held", 2, 4, "beta", "2025-11-21T16:59:44Z"),
        ("held", 4, 5, "gamma", None),
        ("held", 6, 9, "alpha", "2025-11-21T16:59:50Z"),
    ]
    reset = (name, "--topic", name, "--to-offset", "8", "--json")
    planned = json.loads(run("reset-offsets", *reset).output)
    assert planned["executed"] is False
    assert [(one["partition"], one["current"], one["new"], len(one["claims"])) for one in planned["resets"]] == [(0, 2, 8, 3)]
    done = run("reset-offsets", *reset, "--execute", "--drop-claims")
    assert json.loads(done.output)["executed"] is True
    assert json.loads(run("claims", name, "--json").output)["claims"] == []


def test_claims_are_in_the_way_of_a_reset_and_are_listed(stopped: Callable[..., str], run: Run) -> None:
    name = stopped(HELD.offset, HELD.metadata())
    reset = (name, "--topic", name, "--to-offset", "8")
    shown = run("reset-offsets", *reset)
    assert shown.exit_code == 0
    assert f"a reset deletes this claim: {name}-0 [2, 4) 2 offsets: stream beta" in shown.output
    refused = run("reset-offsets", *reset, "--execute")
    assert refused.exit_code == 1
    assert f"{name}-0 [6, 9) 3 offsets: stream alpha" in refused.output
    assert "those below the new offsets will be missing" in refused.output
    assert "0 offsets in flight, 6 held" in run("claims", name).output
    assert run("reset-offsets", *reset, "--execute", "--drop-claims").exit_code == 0
    assert "nothing is claimed" in run("claims", name).output
    assert cells(run("describe", name).output, name)[0][2] == "8"


def test_a_group_that_commits_or_gets_a_member_after_the_plan_was_made_is_not_reset(
    stopped: Callable[..., str], cluster: Cluster
) -> None:
    name = stopped(5)
    group, partition = f"group-of-{name}", TopicPartition(name, 0)
    admin = GroupAdmin({"bootstrap.servers": cluster.bootstrap_servers})
    plan = plan_reset(admin, group, [name], 8)
    admin.alter_offsets(group, {partition: 6})
    with pytest.raises(OffsetsInTheWay, match="has changed since this command described it"):
        execute_reset(admin, group, plan, drop_claims=True)
    with joined(cluster, group, name, 1, enable_auto_commit="false"):
        with pytest.raises(GroupActive, match="nothing was changed, because a member has joined"):
            admin.alter_offsets(group, {partition: 7})
        assert admin.offsets(group)[partition][0] == 6


@pytest.mark.parametrize("version", OTHER_FORMATS)
def test_a_record_in_another_format_is_shown_and_in_the_way_of_a_reset(
    stopped: Callable[..., str], run: Run, version: int
) -> None:
    name = stopped(2, OTHER_FORMATS[version])
    upgrade = f"the commit record of {name}-0 cannot be read: another version of spark_groupsource wrote it in format {version}"
    for command in ("claims", "describe"):
        shown = run(command, name).output
        assert upgrade in shown
        assert "nothing is claimed;" not in shown
    assert cells(run("describe", name).output, name)[0][5:] == ["-", "-", "-", "-", "format", str(version)]
    assert json.loads(run("claims", name, "--json").output)["other_formats"] == [
        {"topic": name, "partition": 0, "format": version}
    ]
    reset = (name, "--topic", name, "--to-offset", "8")
    assert f"a reset deletes this record, which may contain claims: {upgrade}" in run("reset-offsets", *reset).output
    refused = run("reset-offsets", *reset, "--execute")
    assert refused.exit_code == 1
    unread = "Nothing was reset, because this version cannot read the formats of these commit records:"
    assert f"{unread}\n  {upgrade}" in refused.output
    assert upgrade in run("claims", name).output
    assert run("reset-offsets", *reset, "--execute", "--drop-claims").exit_code == 0
    assert cells(run("describe", name).output, name)[0][2] == "8"


def test_a_group_with_members_is_not_reset(topic: MakeTopic, cluster: Cluster, run: Run) -> None:
    name = topic()
    with joined(cluster, f"group-of-{name}", name, 1, client_id="busy") as consumer:
        commit(consumer, name, 0, 0)
        refused = run("reset-offsets", name, "--topic", name, "--to-latest", "--execute")
    assert refused.exit_code == 1
    assert "has 1 member ('busy')" in refused.output
    assert "Stop the group's queries and other consumers" in refused.output


def test_a_partition_or_a_topic_that_does_not_exist_is_named(stopped: Callable[..., str], run: Run) -> None:
    name = stopped(4)
    assert "it has no partition 5" in run("reset-offsets", name, "--topic", f"{name}:0,5", "--to-latest").output
    gone = run("reset-offsets", name, "--topic", "no-such-topic", "--to-latest")
    assert gone.exit_code == 1
    assert "looking up topic no-such-topic" in gone.output
    nobody = run("reset-offsets", "nobody", "--topic", name, "--to-latest")
    assert "There is no consumer group 'group-of-nobody'" in nobody.output
