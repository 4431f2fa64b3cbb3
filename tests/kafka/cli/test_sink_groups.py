"""The commands know a group of the sink: they show the micro-batch that it holds, and write no offset into it."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from devtools.broker import Cluster
from spark_groupsource.brokers.group_admin import GroupAdmin
from spark_groupsource.cli.main import main
from spark_groupsource.cli.top import Snapshot, plain_text
from spark_groupsource.partition import TopicPartition
from spark_groupsource.sink.names import REACHES, Names
from spark_groupsource.sink.token import BatchToken, Mark, Opener, Token, Written, kind_of
from tests.conftest import MakeTopic
from tests.support.consumers import commit_as_another_client
from tests.support.sink_queries import RUN, Query

QUERY = "5e0bd5ce-5a4a-4d49-a9e1-f1d5a8f9a1d5"
TOKENS = {
    "task": Token(QUERY, 17, Written(5, 0xABC), RUN).metadata(),
    "driver": BatchToken(QUERY, 17, 2, 5, RUN, frozenset({0, 1})).metadata(),
}
OPENED = Mark(QUERY, RUN, Opener(1_763_744_390, "host-7", 4711))


def run(cluster: Cluster, command: str, group: str, *more: str) -> Result:
    arguments = [command, "--bootstrap-server", cluster.bootstrap_servers, "--group", group, *more]
    return CliRunner().invoke(main, arguments)


def kept(cluster: Cluster, group: str) -> dict[TopicPartition, tuple[int, str | None]]:
    return GroupAdmin({"bootstrap.servers": cluster.bootstrap_servers}).offsets(group)


@pytest.fixture(params=list(TOKENS))
def group(request: pytest.FixtureRequest, cluster: Cluster, topic: MakeTopic) -> str:
    """A group of the sink with micro-batch 17, on the topic of the same name."""
    name = topic(2)
    commit_as_another_client(cluster, name, name, 18, TOKENS[request.param])
    return name


def test_all_that_a_query_keeps_is_known(cluster: Cluster, topic: MakeTopic) -> None:
    query = Query(cluster, topic(1))
    query.write(0, ["a"])
    query.finish(0, 1, 1)
    with closing(query.tokens) as tokens:
        tokens.commit_mark(REACHES[0] - 1, RUN)
    groups = GroupAdmin(query.settings().requests).groups(query.names.query)
    found = {name: [kind_of(metadata) for _, metadata in kept(cluster, name).values()] for name in groups}
    names = query.names
    marks = (names.open(0), names.open(REACHES[0] - 1), names.reach(REACHES[0]))
    assert found == {names.driver: ["token"], names.task(0): ["token"], **{mark: ["mark"] for mark in marks}}


@pytest.mark.parametrize("place", ["{}:0", "{}:1", "{}"])
@pytest.mark.parametrize("more", [(), ("--execute",), ("--execute", "--drop-claims")])
def test_a_reset_is_refused_whatever_it_would_write(cluster: Cluster, group: str, place: str, more: tuple[str, ...]) -> None:
    before = kept(cluster, group)
    refused = run(cluster, "reset-offsets", group, "--topic", place.format(group), "--to-earliest", *more)
    assert refused.exit_code == 1
    assert f"The group {group} belongs to a query's sink" in refused.output
    assert f"{group}-0: micro-batch 17" in refused.output
    assert kept(cluster, group) == before


def test_a_migration_into_it_is_refused(cluster: Cluster, group: str, tmp_path: Path) -> None:
    for log, line in (("offsets", f'v1\n{{"batchWatermarkMs":0}}\n{{"{group}":{{"0":0,"1":0}}}}'), ("commits", "v1\n{}")):
        (tmp_path / log).mkdir()
        (tmp_path / log / "0").write_text(line)
    (tmp_path / "metadata").write_text('{"id":"5e0bd5ce-5a4a-4d49-a9e1-f1d5a8f9a1d5"}')
    before = kept(cluster, group)
    refused = run(cluster, "migrate", group, "--checkpoint", str(tmp_path), "--overwrite", "--execute")
    assert refused.exit_code == 1
    assert f"The group {group} belongs to a query's sink" in refused.output
    assert kept(cluster, group) == before


def test_the_commands_that_look_say_which_micro_batch_it_holds(cluster: Cluster, group: str) -> None:
    described = run(cluster, "describe", group)
    assert described.exit_code == 0, described.output
    assert "this group belongs to a query's sink" in described.output
    assert f"  {group}-0: micro-batch 17" in described.output
    (partition,) = json.loads(run(cluster, "describe", group, "--json").output)["partitions"]
    assert (partition["sink_batch"], partition["lag"], partition["position"]) == (17, None, None)
    claims = run(cluster, "claims", group)
    assert "this group belongs to a query's sink" in claims.output
    assert "has been processed" not in claims.output
    view = GroupAdmin({"bootstrap.servers": cluster.bootstrap_servers}).describe(group)
    line = plain_text(Snapshot(group, datetime.now(timezone.utc), view)).splitlines()[-1]
    assert "no lag (the group belongs to a query's sink)" in line
    assert "lag 0" not in line + described.output


@pytest.mark.parametrize(
    ("metadata", "said", "shown"),
    [
        (
            OPENED.metadata(),
            "process 4711 on host-7 may have had a transaction open since 2025-11-21T16:59:50Z",
            {"open": True, "run": RUN, "since": "2025-11-21T16:59:50Z", "host": "host-7", "pid": 4711},
        ),
        (
            OPENED._replace(open=None).metadata(),
            "no transaction is open",
            {"open": False, "run": RUN, "since": None, "host": None, "pid": None},
        ),
        (
            OPENED.metadata().replace("host-7", "host\\u001b[2J"),
            "a task may have a transaction open; this version cannot read which process runs it",
            {"open": None, "run": None, "since": None, "host": None, "pid": None},
        ),
    ],
    ids=["open", "ended", "garbage"],
)
def test_a_mark_holds_no_micro_batch_and_is_shown_as_what_it_is(
    cluster: Cluster, topic: MakeTopic, metadata: str, said: str, shown: dict[str, object]
) -> None:
    name = topic(1)
    commit_as_another_client(cluster, name, name, 1, metadata)
    for command in ("describe", "claims"):
        output = run(cluster, command, name).output
        assert "this group belongs to a query's sink" in output
        assert f"  {name}-0: {said}\n" in output
        assert ": micro-batch" not in output
    (partition,) = json.loads(run(cluster, "describe", name, "--json").output)["partitions"]
    assert partition["sink_batch"] is None
    assert partition["sink_transaction"] == shown
    refused = run(cluster, "reset-offsets", name, "--topic", name, "--to-earliest", "--execute")
    assert refused.exit_code == 1
    assert kept(cluster, name) == {TopicPartition(name, 0): (1, metadata)}


def test_the_mark_of_a_reach_is_of_no_task(cluster: Cluster, topic: MakeTopic) -> None:
    name = topic(1)
    group = Names(name, QUERY).reach(REACHES[0])
    commit_as_another_client(cluster, group, name, 1, OPENED.metadata())
    output = run(cluster, "describe", group).output
    assert f"{name}-0: a task with a number below {REACHES[0]} has started to write" in output
    assert "host-7" not in output
