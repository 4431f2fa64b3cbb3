"""`groupkafka describe`: what a user sees of a group, against a real broker."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka.admin import AdminClient

from devtools.broker import Cluster
from spark_groupsource.brokers import group_admin, offsets
from spark_groupsource.brokers.group_admin import GroupAdmin
from spark_groupsource.cli.main import main
from spark_groupsource.partition import TopicPartition
from tests.conftest import MakeTopic, Produce
from tests.kafka.conftest import Filled, MakeQuery
from tests.support.consumers import commit, joined, plain_member
from tests.support.waiting import until

Describe = Callable[..., Result]

BELL_AND_RED = "\x07\x1b[31m"


@pytest.fixture
def describe(cluster: Cluster) -> Describe:
    def run(group: str, *more: str) -> Result:
        arguments = ["describe", "--bootstrap-server", cluster.bootstrap_servers, "--group", group, *more]
        return CliRunner().invoke(main, arguments)

    return run


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The brokers are asked without a child process, and given up soon."""
    monkeypatch.setattr(group_admin, "REQUEST_TIMEOUT_S", 2.0)
    monkeypatch.setattr(
        "spark_groupsource.cli.describe.GroupAdminProcess", lambda settings: contextlib.nullcontext(GroupAdmin(settings))
    )


def row(output: str, topic: str, partition: int) -> list[str]:
    """The cells of a partition's row."""
    rows = [line.split() for line in output.splitlines() if line.split()[:2] == [topic, str(partition)]]
    assert len(rows) == 1, output
    return rows[0]


def test_each_partition_shows_committed_end_lag_and_member_and_nothing_that_clients_chose_raw(
    topic: MakeTopic, produce: Produce, cluster: Cluster, describe: Describe
) -> None:
    name, client_id = topic(partitions=2), f"[bold]{BELL_AND_RED}x"
    produce(name, [(None, "x")] * 10, 0)
    with joined(cluster, f"group-of-{name}", name, 2, client_id=client_id) as consumer:
        commit(consumer, name, 0, 4, f"{BELL_AND_RED}secret words")
        shown = describe(f"group-of-{name}")
        as_json = describe(f"group-of-{name}", "--json").output
    assert shown.exit_code == 0, shown.output
    assert "stable, 1 member" in shown.output
    assert "classic, assignor range" in shown.output
    assert cluster.bootstrap_servers in shown.output
    printable = "[bold]\\x07\\x1b[31mx@127.0.0.1"
    assert row(shown.output, name, 0) == [name, "0", "4", "10", "6", "0", "0", "4", printable, "-"]
    assert row(shown.output, name, 1) == [name, "1", "-", "0", "-", "0", "0", "-", printable, "-"]
    for output in (shown.output, as_json):
        assert not {"\x1b", "\x07"} & set(output)
        assert "secret words" not in output
    group = json.loads(as_json)
    assert (group["state"], group["protocol"], group["lag"]) == ("stable", "classic", 6)
    assert [one["client_id"] for one in group["members"]] == [client_id]
    first, second = group["partitions"]
    assert (first["committed"], first["end"], second["committed"]) == (4, 10, None)
    assert first["member_id"] == group["members"][0]["member_id"]


def test_a_committed_offset_that_a_dead_query_holds_back_is_named_with_what_is_finished_above_it(
    filled: Filled, produce: Produce, query: MakeQuery, describe: Describe
) -> None:
    name = filled()
    a, b = query(name), query(name, heldClaims="hold")
    assert a.plan()
    assert a.claim()
    a.cycle.stop()
    for count in (4, 3):  # b has confirmed the first of its two micro-batches when it claims the second
        produce(name, [(None, "y")] * count)
        b.run_batch()
    shown = describe(f"group-of-{name}")
    assert shown.exit_code == 0, shown.output
    cells = row(shown.output, name, 0)
    assert (cells[2:8], cells[-1]) == (["0", "17", "17", "3", "10", "17"], b.done.stream)
    assert f"{name}-0 [14, 17) 3 offsets, in flight: stream {b.done.stream}, since " in shown.output
    assert "lag 17, of which finished 4, in flight 3, held 10, partitions 1" in shown.output
    (line,) = [line for line in shown.output.splitlines() if "[0, 10)" in line]
    assert line.startswith(f"  {name}-0 [0, 10) 10 offsets, held: stream {a.done.stream}, since ")
    assert re.search(r" \(\d min ago\); 4 finished records above it count as lag$", line)
    assert "To see what to do about a held range, run: groupkafka claims" in shown.output
    output = json.loads(describe(f"group-of-{name}", "--json").output)
    assert output["finished_lag"] == 4
    (one,) = output["partitions"]
    owed, in_flight = one["claims"]
    assert one["lowest_claim"] == {**owed, "finished_lag": 4}
    assert (owed["kind"], owed["stream"], in_flight["kind"]) == ("held", a.done.stream, "in flight")

    b.plan()  # confirms its last micro-batch
    b.cycle.stop()
    left = describe(f"group-of-{name}").output
    assert "empty, 0 members" in left
    assert row(left, name, 0)[2:9] == ["0", "17", "17", "0", "10", "17", "-"]
    assert "lag 17, of which finished 7, in flight 0, held 10" in left
    a.restart()
    assert a.claim() == {0: (0, 10)}
    a.finish()

    def confirmed() -> bool:
        a.plan()
        return "lag 0, in flight 0, held 0" in describe(f"group-of-{name}").output

    until(confirmed, "a has confirmed it")
    assert "claimed but not confirmed" not in describe(f"group-of-{name}").output


def test_members_without_partitions_are_listed(topic: MakeTopic, cluster: Cluster, describe: Describe) -> None:
    name = topic()
    spare = {"client.id": "z-idle", "group.instance.id": "spare"}
    with (
        joined(cluster, f"group-of-{name}", name, 1, client_id="busy") as busy,
        plain_member(cluster, f"group-of-{name}", name, spare),
    ):

        def both_are_in() -> bool:
            busy.poll(0.1)
            text = describe(f"group-of-{name}").output
            return "stable, 2 members" in text and "members without partitions" in text

        until(both_are_in, "two members of which one is idle")
        listed = describe(f"group-of-{name}").output.partition("members without partitions:\n")[2]
    assert "/spare@127.0.0.1" in listed or "busy@127.0.0.1" in listed


def test_a_kip_848_group_is_described_too(topic: MakeTopic, cluster: Cluster, describe: Describe) -> None:
    name = topic()
    with plain_member(cluster, f"group-of-{name}", name, {"group.protocol": "consumer"}) as member:
        until(lambda: member.owned == 1, "a partition")
        shown = describe(f"group-of-{name}").output
    assert "consumer, assignor uniform" in shown
    assert "@127.0.0.1" in row(shown, name, 0)[8]


def test_a_topic_with_more_partitions_than_one_call_asks_for_is_described_whole(
    topic: MakeTopic, produce: Produce, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offsets, "PARTITIONS_IN_A_CALL", 2)
    name = topic(partitions=5)
    produce(name, [(None, "x")] * 3, 4)
    group = f"group-of-{name}"
    admin = GroupAdmin({"bootstrap.servers": cluster.bootstrap_servers})
    admin.alter_offsets(group, {TopicPartition(name, number): 0 for number in range(5)})
    # The broker opens the logs of a new topic one by one, and says until then that it is not their leader.
    until(lambda: all(one.end is not None for one in admin.describe(group).partitions), "the ends of all partitions")
    shown = admin.describe(group)
    assert [(one.partition.partition, one.committed) for one in shown.partitions] == [(number, 0) for number in range(5)]
    assert [one.end for one in shown.partitions] == [0, 0, 0, 0, 3]
    assert shown.lag == 3


def test_a_partition_of_a_deleted_topic_is_shown_without_an_end(
    topic: MakeTopic, admin: AdminClient, cluster: Cluster, describe: Describe
) -> None:
    name = topic()
    with joined(cluster, f"group-of-{name}", name, 1):
        admin.delete_topics([name])[name].result()
        until(lambda: row(describe(f"group-of-{name}").output, name, 0)[3] == "-", "the end is unknown")


def test_a_group_that_does_not_exist_is_an_error_that_names_it(describe: Describe) -> None:
    shown = describe("no-such-group")
    assert shown.exit_code == 1
    assert "There is no consumer group 'no-such-group'" in shown.output
    assert "Traceback" not in shown.output


def test_no_broker_is_an_error_within_seconds(in_this_process: None) -> None:
    begin = time.monotonic()
    shown = CliRunner().invoke(main, ["describe", "--bootstrap-server", "127.0.0.1:1", "--group", "g"])
    assert time.monotonic() - begin < 30
    assert shown.exit_code == 1
    assert "describing group g" in shown.output
    assert "kafka.bootstrap.servers" in shown.output


def test_command_config_is_translated_and_its_secrets_are_not_shown(
    describe: Describe, tmp_path: Path, in_this_process: None
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "# a comment\n"
        "security.protocol = SASL_PLAINTEXT\n"
        "sasl.mechanism: PLAIN\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\\n"
        '    username="user" password="hunter2";\n'
    )
    shown = describe("g", "--command-config", str(file))
    assert shown.exit_code == 1  # the broker speaks PLAINTEXT only
    assert "hunter2" not in shown.output
    file.write_text("sasl.jaas.config=nonsense hunter2\nsecurity.protokol=SSL\n")
    shown = describe("g", "--command-config", str(file))
    assert shown.exit_code == 1
    assert "hunter2" not in shown.output
    assert "security.protokol" in shown.output
