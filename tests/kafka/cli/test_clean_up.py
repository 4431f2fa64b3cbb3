"""`groupkafka clean-up` against a real broker; tests/spark/test_changes.py follows the page with a query of Spark."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result
from confluent_kafka.admin import AclOperation, ResourceType  # type: ignore[attr-defined]

from devtools.broker import Cluster
from spark_groupsource.brokers.group_admin import GroupAdmin
from spark_groupsource.cli import clean_up
from spark_groupsource.cli.main import main
from spark_groupsource.errors import BatchUnknown, GroupActive
from spark_groupsource.sink import token_store
from spark_groupsource.sink.token import BatchToken
from tests.conftest import MakeTopic
from tests.kafka.sink.test_transactions import login
from tests.support.consumers import commit_as_another_client, joined
from tests.support.secured import Secured
from tests.support.sink_queries import LATER_RUN, RUN, Query

TASKS = 6


def run_command(query: Query, *more: str) -> Result:
    where = ("--bootstrap-server", query.cluster.bootstrap_servers, "--query", query.names.query)
    return CliRunner().invoke(main, ["clean-up", *where, *more])


def groups(query: Query) -> list[str]:
    return GroupAdmin({"bootstrap.servers": query.cluster.bootstrap_servers}).groups(query.names.query)


@pytest.fixture
def long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    """The marks that are left in the test are older than those of a query that writes."""
    at = time.time() - clean_up.QUIET_S - 1
    monkeypatch.setattr(token_store, "time", SimpleNamespace(time=lambda: at, monotonic=time.monotonic))


@pytest.fixture
def query(cluster: Cluster, topic: MakeTopic) -> Query:
    return Query(cluster, topic(2))


def written(query: Query) -> Query:
    query.run(0, [[f"{task}"] for task in range(TASKS)], run=RUN)
    return query


@pytest.mark.usefixtures("long_ago")
def test_all_groups_of_the_query_are_shown_and_with_execute_they_are_gone(query: Query) -> None:
    names = written(query).names
    other = written(Query(query.cluster, query.topic))
    theirs = groups(other)
    mine = [names.driver, *map(names.task, range(TASKS)), *map(names.open, range(TASKS)), names.reach(8)]
    assert groups(query) == sorted(mine)
    shown = run_command(query)
    assert shown.exit_code == 0, shown.output
    assert f"{names.driver}  {query.topic}-0: micro-batch 0\n" in shown.output
    assert f"{names.open(2)}  {query.topic}-0: process " in shown.output
    assert f"{len(mine)} groups of query {names.query}\n" in shown.output
    assert "only if the query will never run again" in shown.output
    assert shown.output.endswith("dry run: nothing was changed. Use --execute to make the change.\n")
    assert groups(query) == sorted(mine)
    done = run_command(query, "--execute")
    assert done.output.endswith("done\n")
    assert groups(query) == []
    assert groups(other) == theirs
    nothing = run_command(query, "--execute")
    assert nothing.exit_code == 0
    assert nothing.output == f"query {names.query} has no group left that this user may describe\n"


@pytest.mark.usefixtures("long_ago")
def test_rows_that_name_their_topics_and_other_names_of_the_query_are_no_exception(
    cluster: Cluster, topic: MakeTopic, query: Query, tmp_path: Path
) -> None:
    written(query)
    moved = query.renamed(topic=topic(), transactionalIdPrefix="other")
    moved.run(1, [["a"]], rewriteBatch="1")
    (tmp_path / "metadata").write_text(json.dumps({"id": query.names.query}))
    arguments = ["clean-up", "--bootstrap-server", cluster.bootstrap_servers, "--checkpoint", str(tmp_path)]
    result = CliRunner().invoke(main, [*arguments, "--execute", "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert (found["query"], found["executed"], found["others"]) == (query.names.query, True, [])
    assert {one["group"] for one in found["groups"]} >= {query.names.driver, moved.names.driver, moved.names.open(0)}
    # First the drivers' groups: without them a query that comes back notices that something is missing.
    assert {one["group"] for one in found["groups"][:2]} == {query.names.driver, moved.names.driver}
    of = {one["group"]: one["partitions"] for one in found["groups"]}
    assert of[moved.names.task(0)] == [{"topic": moved.topic, "partition": 0, "sink_batch": 1, "sink_transaction": None}]
    assert of[moved.names.open(0)][0]["sink_transaction"]["open"] is True
    assert groups(query) == []


def test_a_query_that_may_still_run_is_refused_until_a_named_time(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    before = groups(written(query))
    for more in ((), ("--execute",), ("--execute", "--json")):
        refused = run_command(query, *more)
        assert refused.exit_code == 1
        assert f"Nothing was deleted, because query {query.names.query} may still be running" in refused.output
    assert groups(query) == before != []
    monkeypatch.setattr(clean_up, "QUIET_S", 0.0)  # the time has come
    assert run_command(query, "--execute").exit_code == 0
    assert groups(query) == []


@pytest.mark.usefixtures("long_ago")
def test_a_reader_with_the_id_in_its_groups_name_stays(query: Query, cluster: Cluster) -> None:
    assert query.topic is not None
    written(query)
    readers = [f"q-{query.names.query}", f"reader-of-{query.names.query}-rows", f"steers\x1b-{query.names.query}"]
    for group in readers:
        commit_as_another_client(cluster, group, query.topic, 3)
    done = run_command(query, "--execute")
    assert done.exit_code == 0, done.output
    assert groups(query) == sorted(readers)
    for group in readers:
        line = f"not deleted, because it contains offsets that the sink did not write: {group}\n"
        assert line.replace("\x1b", "\\x1b") in done.output


@pytest.mark.usefixtures("long_ago")
def test_a_group_with_a_member_is_refused(query: Query, cluster: Cluster) -> None:
    assert query.topic is not None
    before = groups(written(query))
    with joined(cluster, query.names.task(0), query.topic, 2):
        refused = run_command(query, "--execute")
        with pytest.raises(GroupActive, match="the group was not deleted"):
            GroupAdmin({"bootstrap.servers": cluster.bootstrap_servers}).delete(query.names.task(0))
    assert refused.exit_code == 1
    assert f"The group {query.names.task(0)} has 1 member" in refused.output
    assert groups(query) == before


@pytest.mark.usefixtures("long_ago")
def test_a_query_that_comes_back_after_half_of_it_notices_that(query: Query) -> None:
    written(query)
    GroupAdmin({"bootstrap.servers": query.cluster.bootstrap_servers}).delete(query.names.driver)
    with pytest.raises(BatchUnknown):
        query.run(1, [["new"]], run=LATER_RUN)


@pytest.mark.usefixtures("long_ago")
def test_a_user_who_may_not_delete_groups_learns_which_acl_is_missing(
    secured: Secured, secured_topic: Callable[[str], str], tmp_path: Path
) -> None:
    prefix = secured_topic("cleaned-")
    query = Query(secured.cluster, prefix, transactionalIdPrefix=prefix)
    secured.allow((ResourceType.GROUP, prefix, AclOperation.DESCRIBE), (ResourceType.TOPIC, prefix, AclOperation.DESCRIBE))
    with closing(query.tokens) as kept:
        kept.commit_mark(0, RUN)
        kept.commit_driver(BatchToken(query.names.query, 0, 1, 1, RUN, frozenset({0})), [])
    arguments = ["clean-up", *login(secured, tmp_path), "--query", query.names.query, "--execute"]
    refused = CliRunner().invoke(main, arguments)
    assert refused.exit_code == 1
    assert "The user needs the DELETE ACL on the group" in refused.output
    assert len(groups(query)) == 2
    secured.allow((ResourceType.GROUP, prefix, AclOperation.DELETE))
    until_allowed = CliRunner().invoke(main, arguments)
    assert until_allowed.exit_code == 0, until_allowed.output
    assert groups(query) == []
