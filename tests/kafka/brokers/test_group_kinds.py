"""Groups that are no consumer groups: every command names the kind and leaves the group alone, and so does a query."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from click.testing import CliRunner

from devtools.broker import Cluster
from spark_groupsource.brokers.group_admin import GroupAdmin
from spark_groupsource.cli.main import main
from spark_groupsource.errors import NotAConsumerGroup
from spark_groupsource.options.model import Options
from spark_groupsource.partition import TopicPartition
from spark_groupsource.query.batch_plan import plan_batch
from tests.conftest import MakeTopic
from tests.kafka.conftest import Filled, MakeQuery
from tests.support.other_groups import ConnectGroup, ShareGroup, StreamsGroup

KINDS = (ShareGroup, StreamsGroup, ConnectGroup)
Kind = type[ShareGroup | StreamsGroup | ConnectGroup]


def said_by(command: str, cluster: Cluster, group: str, *more: str) -> str:
    done = CliRunner().invoke(main, [command, "--bootstrap-server", cluster.bootstrap_servers, "--group", group, *more])
    assert done.exit_code == 1, done.output
    assert "Traceback" not in done.output
    return done.output


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("alive", [True, False], ids=["alive", "stopped"])
def test_every_command_names_the_kind(filled: Filled, cluster: Cluster, kind: Kind, *, alive: bool) -> None:
    name = filled()
    group = f"group-of-{name}"
    made = kind(cluster, group, name)
    if not alive:
        made.leave()
    for command, *more in (
        ("describe",),
        ("claims", "--json"),
        ("top",),
        ("reset-offsets", "--topic", name, "--to-latest", "--execute"),
    ):
        said = said_by(command, cluster, group, *more)
        assert f"The group '{group}' is a " in said
        assert kind.kind in said
        assert "Set kafka.group.id to a name that no other kind of group uses." in said
    assert GroupAdmin({"bootstrap.servers": cluster.bootstrap_servers}).offsets(group) == {}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_query_that_is_refused_names_the_kind(
    topic: MakeTopic, cluster: Cluster, query: MakeQuery, kind: Kind, protocol: str
) -> None:
    name = topic()
    kind(cluster, f"group-of-{name}", name)
    with pytest.raises(NotAConsumerGroup, match=kind.kind) as refused:
        query(name, **{"kafka.group.protocol": protocol}).plan()
    assert "assignment.strategy" not in str(refused.value)
    assert refused.value.__suppress_context__, "the other error sends the user to the other protocol"


def test_a_streams_group_with_offsets_is_named_for_sure_and_they_are_not_moved(filled: Filled, cluster: Cluster) -> None:
    """Kafka Streams commits under its own group, and its offsets look like those of a stopped consumer group."""
    name = filled()
    group = f"group-of-{name}"
    StreamsGroup(cluster, group, name).leave()
    admin = GroupAdmin({"bootstrap.servers": cluster.bootstrap_servers})
    admin.alter_offsets(group, {TopicPartition(name, 0): 3})
    for command, *more in (("describe",), ("reset-offsets", "--topic", name, "--to-latest", "--execute")):
        said = said_by(command, cluster, group, *more)
        assert f"The group '{group}' is a streams group (KIP-1071)" in said
        assert "kafka-streams-groups.sh" in said
    assert {one: offset for one, (offset, _) in admin.offsets(group).items()} == {TopicPartition(name, 0): 3}


@pytest.mark.parametrize("more", [{}, {"commitOffsets": "true"}], ids=["reads", "commits"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_read_of_what_such_a_group_has_not_processed(
    filled: Filled, cluster: Cluster, kind: Kind, more: Mapping[str, str]
) -> None:
    """It has no commits, and would be read as if it had processed nothing."""
    name = filled()
    kind(cluster, f"group-of-{name}", name)
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "kafka.group.id": f"group-of-{name}", "subscribe": name}
    with pytest.raises(NotAConsumerGroup, match=kind.kind):
        plan_batch(Options.parse({**given, "startingOffsets": "committed", **more}, "batch"))
