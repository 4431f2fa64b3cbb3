"""What an error of the sink advises, followed to the letter, and what a reader of committed records finds then."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import closing

import pytest
from confluent_kafka.admin import AdminClient

from devtools.broker import Cluster
from spark_groupsource.brokers.group_admin import GroupAdmin
from spark_groupsource.brokers.group_offsets import GroupOffsets
from spark_groupsource.errors import (
    BatchUnknown,
    CheckpointBehindSink,
    GroupKafkaError,
    RecordTooLarge,
    ReplayDiffers,
    SinkError,
    TokenUnreadable,
    TopicNotFound,
    WrittenElsewhere,
)
from spark_groupsource.sink.topics import refuse_missing
from tests.conftest import MakeTopic
from tests.support.committed import read_committed
from tests.support.sink_queries import LATER_RUN, RUN, Query
from tests.support.waiting import until


@pytest.fixture
def query(cluster: Cluster, topic: MakeTopic) -> Query:
    return Query(cluster, topic(2))


def advised(error: GroupKafkaError, option: str) -> dict[str, str]:
    """Return the option as the error names it."""
    found = re.search(rf"\b{option}=([0-9]+)", str(error))
    assert found is not None, f"{error} does not name {option}"
    return {option: found[1]}


def there(query: Query) -> Counter[str]:
    return Counter(read_committed(query.cluster, query.topic))


def recreate(cluster: Cluster, topic: str) -> None:
    client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    client.delete_topics([topic])[topic].result()
    until(lambda: topic not in client.list_topics(timeout=60).topics, "the topic is deleted")
    cluster.create_topic(topic, 1)


OPTIONS = pytest.mark.parametrize("option", ["rewriteBatch", "skipBatch"])


def test_a_replay_with_other_rows_as_it_was(query: Query) -> None:
    query.write(0, ["a", "b"])
    with pytest.raises(ReplayDiffers, match="has 2 rows of micro-batch 0 from this task, which now has 3 rows"):
        query.run(0, [["a", "b", "c"], ["d"]])
    query.run(0, [["a", "b"], ["d"]])
    assert there(query) == Counter("abd")


@OPTIONS
@pytest.mark.parametrize("rows", [["a", "x"], ["a", "b", "c"]], ids=["other content", "more"])
def test_a_replay_with_other_rows(query: Query, option: str, rows: list[str]) -> None:
    """The first task has other rows now, the second the same, and the third had not written."""
    query.write(0, ["a", "b"])
    query.write(0, ["s"], 1)
    tasks = [rows, ["s"], ["d"]]
    with pytest.raises(ReplayDiffers, match=f"now has {len(rows)} rows") as refused:
        query.run(0, tasks)
    query.run(0, tasks, **advised(refused.value, option))
    if option == "rewriteBatch":
        assert there(query) == Counter("ab") + Counter(rows) + Counter("sd")
    else:
        assert there(query) == Counter("abs")
    query.run(1, [["e"], [], ["f"]])
    assert there(query)["e"] == there(query)["f"] == 1


@OPTIONS
def test_a_choice_may_be_interrupted_and_stay_set(query: Query, option: str) -> None:
    query.write(0, ["a", "b"])
    chosen = {option: "0"}
    query.write(0, ["a", "c"], 0, run=LATER_RUN, **chosen)
    third = "00000000-0000-0000-0000-000000000003"
    query.run(0, [["a", "c"], ["d"]], run=third, **chosen)
    query.run(1, [["e"], ["f"]], run=third, **chosen)
    expected = {"rewriteBatch": Counter("ab") + Counter("acd"), "skipBatch": Counter("ab")}[option]
    assert there(query) == expected + Counter("ef")


@OPTIONS
@pytest.mark.parametrize("begun", [False, True], ids=["stopped while it waited", "stopped in the micro-batch"])
def test_a_query_whose_tokens_have_expired(query: Query, option: str, begun: bool) -> None:
    query.run(0, [["a"], ["b"]], run=RUN)
    if begun:
        query.write(1, ["c"])
    forget(query)
    with pytest.raises(
        BatchUnknown, match=r"(?s)no offset for a finished micro-batch.*This task now has 1 rows of it"
    ) as refused:
        query.run(1, [["c"], ["d"]])
    assert there(query) == Counter("abc" if begun else "ab")
    query.run(1, [["c"], ["d"]], **advised(refused.value, option))
    expected = {
        ("rewriteBatch", False): "abcd",
        ("rewriteBatch", True): "abccd",
        ("skipBatch", False): "ab",
        ("skipBatch", True): "abc",
    }
    assert there(query) == Counter(expected[option, begun])
    query.run(2, [["e"], ["f"]])
    assert there(query)["e"] == there(query)["f"] == 1


def forget(query: Query) -> None:
    """Delete all groups of the query, as the brokers do after `offsets.retention.minutes`."""
    admin = GroupAdmin(query.settings().requests)
    client = AdminClient({"bootstrap.servers": query.cluster.bootstrap_servers})
    for future in client.delete_consumer_groups(admin.groups(query.names.query)).values():
        future.result()


@pytest.mark.parametrize(("option", "batch"), [("rewriteBatch", 0), ("skipBatch", 1)])
@pytest.mark.parametrize("tasks", [[["a", "b"]], [[], ["a", "b"]]], ids=["fewer tasks", "a task without rows"])
def test_rows_that_have_moved_to_another_task(query: Query, option: str, tasks: list[list[str]], batch: int) -> None:
    """The task that has them now finds nothing of its own: only the driver can notice."""
    for earlier in range(batch):
        query.run(earlier, [["0"], ["1"]], run=RUN)
    had = 1 if len(tasks) == 1 else 0
    query.write(batch, ["a", "b"] if had == 0 else ["b"], had)
    with pytest.raises(ReplayDiffers, match=r"(?s)An earlier attempt wrote . rows in.*tasks that now have none") as refused:
        query.run(batch, tasks)
    there_now = there(query)
    assert there_now["a"] >= 1
    query.run(batch, tasks, **advised(refused.value, option))
    assert there(query) == there_now, "all of it was written: the choice only lets the query go on"
    query.run(batch + 1, [["e"], ["f"]])
    assert there(query)["e"] == there(query)["f"] == 1


@OPTIONS
def test_a_finished_micro_batch_whose_result_has_another_number_of_rows(query: Query, option: str) -> None:
    query.run(0, [["a"], []], run=RUN)
    tasks = [["a"], ["b"]]
    with pytest.raises(ReplayDiffers) as refused:
        query.run(0, tasks)
    query.run(0, tasks, **advised(refused.value, option))
    assert there(query) == Counter("ab" if option == "rewriteBatch" else "a")


RENAMED = pytest.mark.parametrize("changed", ["transactionalIdPrefix", "topic"])


@RENAMED
def test_a_name_that_is_changed_between_two_micro_batches(query: Query, topic: MakeTopic, changed: str) -> None:
    query.run(0, [["a"], ["b"]], run=RUN)
    renamed = query.renamed(**{changed: topic()})
    renamed.run(1, [["c"], ["d"]])
    renamed.run(2, [["e"], ["f"]])
    found = there(query) if changed != "topic" else there(query) + there(renamed)
    assert found == Counter("abcdef")


@RENAMED
def test_a_name_that_is_changed_and_changed_back_in_a_micro_batch(query: Query, topic: MakeTopic, changed: str) -> None:
    """As somebody does whose user may not write under the new one."""
    query.run(0, [["a"], ["b"]], run=RUN)
    renamed = query.renamed(**{changed: topic()})
    renamed.write(1, ["c"])
    with pytest.raises(WrittenElsewhere):
        query.run(1, [["c"], ["d"]])
    renamed.run(1, [["c"], ["d"]])
    query.run(2, [["e"], ["f"]])
    found = there(query) if changed != "topic" else there(query) + there(renamed)
    assert found == Counter("abcdef")


def test_a_choice_that_is_left_from_an_earlier_checkpoint(query: Query) -> None:
    query.write(0, ["a"])
    query.run(0, [["x"], ["b"]], skipBatch="0")
    new = Query(query.cluster, query.topic)
    with pytest.raises(SinkError, match="probably left over from an earlier checkpoint"):
        new.run(0, [["c"], ["d"]], skipBatch="0")
    new.run(0, [["c"], ["d"]])
    assert there(query) == Counter("acd")


@RENAMED
@pytest.mark.parametrize(("advice", "batch"), [("as it was", 0), ("rewriteBatch", 1), ("skipBatch", 0)])
def test_a_name_that_is_changed_in_a_micro_batch(query: Query, topic: MakeTopic, changed: str, advice: str, batch: int) -> None:
    for earlier in range(batch):
        query.run(earlier, [["0"], ["1"]], run=RUN)
    query.write(batch, ["a"])
    renamed = query.renamed(**{changed: topic()})
    tasks = [["a"], ["b"]]
    for number, rows in enumerate(tasks):
        # Whichever comes first: nothing is written under the new name.
        with pytest.raises(WrittenElsewhere, match=r"(?s)but part of it, 1 rows.*This task now has 1 rows") as refused:
            renamed.write(batch, rows, number, run=LATER_RUN)
    assert there(renamed)["b"] == 0
    assert f"transactionalIdPrefix {query.names.prefix}, topic {query.topic}" in str(refused.value)
    if advice == "as it was":
        query.run(batch, tasks)
        renamed.run(batch + 1, [["c"], ["d"]])
        expected = Counter("abcd")
    else:
        renamed.run(batch, tasks, **advised(refused.value, advice))
        renamed.run(batch + 1, [["c"], ["d"]])
        expected = Counter("aabcd" if advice == "rewriteBatch" else "acd")
    found = there(query) if changed != "topic" else there(query) + there(renamed)
    assert found == expected + Counter({"0": batch, "1": batch})


def test_the_first_change_from_the_column_topic_to_the_option_is_noticed(cluster: Cluster, topic: MakeTopic) -> None:
    import pyarrow as pa

    name = topic()
    by_column = Query(cluster, None)
    by_column.write(0, pa.RecordBatch.from_pydict({"value": ["a"], "topic": [topic()]}))
    with pytest.raises(WrittenElsewhere):
        by_column.renamed(topic=name).write(0, ["a"], run=LATER_RUN)
    assert read_committed(cluster, name) == []


def test_a_name_that_is_changed_back_does_not_find_the_tokens_of_that_time(query: Query) -> None:
    query.run(0, [["a"]], run=RUN)
    renamed = query.renamed(transactionalIdPrefix="other")
    renamed.run(1, [["b"]])
    renamed.write(2, ["c"])
    with pytest.raises(WrittenElsewhere):
        query.run(2, [["c"]])
    renamed.run(2, [["c"]])
    query.run(3, [["d"]])
    assert there(query) == Counter("abcd")


def test_micro_batches_that_were_written_at_least_once_meanwhile_are_not_known(query: Query) -> None:
    query.run(0, [["a"]], run=RUN)
    with pytest.raises(BatchUnknown, match="According to the query's offsets, the latest finished micro-batch is 0") as refused:
        query.run(2, [["c"]])
    query.run(2, [["c"]], **advised(refused.value, "rewriteBatch"))
    assert there(query) == Counter("ac")


def test_a_second_driver_that_commits_its_offset_late(query: Query) -> None:
    query.run(0, [["a"], ["b"]], run=RUN)
    with closing(query.tokens) as tokens:
        late = tokens.read_driver()
    assert late is not None
    query.run(1, [["c"], ["d"]])
    query.write(2, ["e"], run=LATER_RUN)
    with closing(query.tokens) as tokens:
        tokens.commit_driver(late, ())
    third, tasks = "00000000-0000-0000-0000-000000000003", [["e"], ["f"]]
    with pytest.raises(BatchUnknown, match=r"has since written micro-batch 1\. So a second driver") as refused:
        query.run(2, tasks, run=third)
    query.run(2, tasks, run=third, **advised(refused.value, "rewriteBatch"))
    assert there(query) == Counter("abcdef")


def test_a_checkpoint_that_was_restored(query: Query) -> None:
    for batch in range(3):
        query.run(batch, [[f"{batch}a"], [f"{batch}b"]], run=RUN)
    with pytest.raises(CheckpointBehindSink, match=r"rows of micro-batches 1 to 2 may be duplicated") as refused:
        query.run(1, [["1a"], ["1b"]])
    renamed = query.renamed(transactionalIdPrefix="another")
    with pytest.raises(CheckpointBehindSink):
        renamed.run(1, [["1a"], ["1b"]])
    chosen = advised(refused.value, "rewriteBatch")
    for batch in range(1, 4):
        renamed.run(batch, [[f"{batch}a"], [f"{batch}b"]], **chosen)
    assert there(query) == Counter({f"{batch}{task}": 1 + (batch in (1, 2)) for batch in range(4) for task in "ab"})


def test_the_newest_checkpoint_goes_on(query: Query) -> None:
    for batch in range(3):
        query.run(batch, [[str(batch)]], run=RUN)
    with pytest.raises(CheckpointBehindSink, match="Start the query from its latest checkpoint"):
        query.run(1, [["1"]])
    query.run(3, [["3"]])
    assert there(query) == Counter("0123")


def test_another_client_that_commits_to_a_group_of_the_sink(query: Query) -> None:
    query.run(0, [["a"]], run=RUN)
    query.write(1, ["b"])
    assert query.topic is not None
    with closing(GroupOffsets(query.settings().requests, query.names.task(0))) as other_client:
        other_client.commit(query.topic, 7, "something")
    with pytest.raises(TokenUnreadable, match="Choose another transactionalIdPrefix"):
        query.run(1, [["b"]])
    renamed = query.renamed(transactionalIdPrefix="another")
    with pytest.raises(BatchUnknown, match="Another client, or another version of this package, has committed") as refused:
        renamed.run(1, [["b"]])
    renamed.run(1, [["b"]], **advised(refused.value, "rewriteBatch"))
    assert there(query) == Counter("abb")


def test_a_row_that_is_too_large(cluster: Cluster, topic: MakeTopic) -> None:
    query = Query(cluster, topic(1, {"max.message.bytes": "3000000"}))
    large = "x" * 1_200_000
    with pytest.raises(RecordTooLarge, match=r"Raise kafka\.max\.request\.size"):
        query.write(0, ["a", large])
    query.write(0, ["a", large], 0, **{"kafka.max.request.size": "2000000"})
    assert [len(row) for row in read_committed(cluster, query.topic)] == [1, 1_200_000]


def test_a_topic_that_does_not_exist(cluster: Cluster, topic: MakeTopic) -> None:
    query = Query(cluster, f"{topic()}-missing")
    with pytest.raises(TopicNotFound, match="Create it"):
        refuse_missing(query.settings(), query.topic)
    cluster.create_topic(query.topic or "", 1)
    refuse_missing(query.settings(), query.topic)
    query.run(0, [["a"]])
    assert there(query) == Counter("a")


@OPTIONS
def test_a_topic_that_was_deleted_and_created_again(cluster: Cluster, topic: MakeTopic, option: str) -> None:
    name = topic()
    query = Query(cluster, name)
    query.run(0, [["a"]], run=RUN)
    recreate(cluster, name)
    with closing(query.tokens) as tokens:
        until(lambda: tokens.read_driver() is None, "its offsets are deleted, too")
    with pytest.raises(SinkError) as refused:
        query.run(1, [["b"]])
    assert isinstance(refused.value, BatchUnknown)
    query.run(1, [["b"]], **advised(refused.value, option))
    query.run(2, [["c"]])
    assert there(query) == Counter("bc" if option == "rewriteBatch" else "c")


def test_queries_may_share_a_prefix_and_a_new_checkpoint_begins_anew(query: Query) -> None:
    other = Query(query.cluster, query.topic)
    assert other.names.prefix == query.names.prefix
    for each in (query, other):
        each.run(0, [["a"], ["b"]])
    assert there(query) == Counter("aabb")
