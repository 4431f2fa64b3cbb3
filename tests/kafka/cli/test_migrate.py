"""`groupkafka migrate` against a real broker, on checkpoints in Spark's format; tests/spark/test_migrate.py has Spark's own."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

from devtools.broker import Cluster
from spark_groupsource.cli.main import main
from spark_groupsource.handoff.commit_record import CommitRecord, OpenRange
from tests.kafka.conftest import Filled
from tests.support.consumers import commit, commit_as_another_client, joined
from tests.support.fetching import delete_before
from tests.support.group_offsets import committed_offsets
from tests.support.waiting import until

Migrate = Callable[..., Result]
WriteCheckpoint = Callable[..., Path]

CLAIMED = CommitRecord(stream="alpha", logged=7, done=6, next=9, open=(OpenRange(6, 9),))


@pytest.fixture
def checkpoint(tmp_path: Path) -> WriteCheckpoint:
    """Writes a checkpoint with micro-batches 0 and 1, the second of which may not be committed."""

    def write(offsets: Mapping[str, Mapping[int, int]], *, committed: bool = True) -> Path:
        folder = tmp_path / "checkpoint"
        for log in ("offsets", "commits"):
            (folder / log).mkdir(parents=True, exist_ok=True)
        (folder / "metadata").write_text('{"id":"5e0bd5ce-5a4a-4d49-a9e1-f1d5a8f9a1d5"}')
        at_end = json.dumps({topic: {str(number): offset for number, offset in each.items()} for topic, each in offsets.items()})
        at_start = json.dumps({topic: dict.fromkeys(map(str, each), 0) for topic, each in offsets.items()})
        for batch, line in ((0, at_start), (1, at_end)):
            (folder / "offsets" / str(batch)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{line}')
            (folder / "offsets" / f".{batch}.crc").write_bytes(b"crc")
            if batch == 0 or committed:
                (folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
        return folder

    return write


@pytest.fixture
def migrate(cluster: Cluster) -> Migrate:
    def run_command(topic: str, folder: Path | str, *more: str) -> Result:
        given = ["--checkpoint", str(folder), "--bootstrap-server", cluster.bootstrap_servers, "--group", f"group-of-{topic}"]
        return CliRunner().invoke(main, ["migrate", *given, *more])

    return run_command


def cells(output: str, topic: str) -> list[list[str]]:
    return [line.split() for line in output.splitlines() if line.startswith(f"{topic} ")]


def test_a_migration_is_shown_first_and_done_only_on_execute(
    filled: Filled, checkpoint: WriteCheckpoint, migrate: Migrate, cluster: Cluster
) -> None:
    name = filled(2)
    folder = checkpoint({name: {0: 4, 1: 10}})
    shown = migrate(name, folder)
    assert shown.exit_code == 0, shown.output
    assert cells(shown.output, name) == [[name, "0", "-", "4", "-"], [name, "1", "-", "10", "-"]]
    assert "query        5e0bd5ce-5a4a-4d49-a9e1-f1d5a8f9a1d5" in shown.output
    assert "micro-batch  1, committed 20" in shown.output
    assert "dry run: nothing was changed" in shown.output
    assert "keeps state" not in shown.output
    assert committed_offsets(cluster, f"group-of-{name}", name) == {}
    (folder / "state" / "0").mkdir(parents=True)
    done = migrate(name, f"file://{folder}", "--execute")
    assert done.exit_code == 0, done.output
    assert "a new checkpoint" in done.output
    assert "keeps state" in done.output, "it is not copied"
    assert committed_offsets(cluster, f"group-of-{name}", name) == {0: 4, 1: 10}
    again = migrate(name, folder, "--execute", "--json")
    assert json.loads(again.output)["partitions"][0] == {
        "topic": name,
        "partition": 0,
        "current": 4,
        "new": 4,
        "other_format": None,
        "added": False,
        "expired": 0,
    }


def test_a_micro_batch_that_was_not_committed_is_read_again_or_skipped_on_request(
    filled: Filled, checkpoint: WriteCheckpoint, migrate: Migrate
) -> None:
    name = filled()
    folder = checkpoint({name: {0: 4}}, committed=False)
    refused = migrate(name, folder)
    assert refused.exit_code == 1
    assert "Micro-batch 1 was started but not committed" in refused.output
    reread = migrate(name, folder, "--uncommitted", "reread")
    assert cells(reread.output, name)[0][3] == "0"
    assert "1 was started but not committed: its records will be read again" in reread.output
    assert cells(migrate(name, folder, "--uncommitted", "skip").output, name)[0][3] == "4"


def test_a_partition_that_was_added_starts_at_its_beginning(
    filled: Filled, checkpoint: WriteCheckpoint, migrate: Migrate, admin: AdminClient, cluster: Cluster
) -> None:
    name = filled()
    folder = checkpoint({name: {0: 4}})
    admin.create_partitions([NewPartitions(name, 2)])[name].result(30)
    until(lambda: len(admin.list_topics(name, timeout=30).topics[name].partitions) == 2, "2 partitions")
    done = migrate(name, folder, "--execute")
    assert f"added after the checkpoint, so it will be read from the beginning: {name}-1" in done.output
    assert committed_offsets(cluster, f"group-of-{name}", name) == {0: 4, 1: 0}


def test_records_that_expired_are_reported_and_left_to_the_query(
    filled: Filled, checkpoint: WriteCheckpoint, migrate: Migrate, admin: AdminClient, cluster: Cluster
) -> None:
    name = filled()
    folder = checkpoint({name: {0: 4}, "no-such-topic": {0: 7}})
    delete_before(admin, name, 6)
    done = migrate(name, folder, "--execute")
    assert done.exit_code == 0, done.output
    assert f"no longer in Kafka: {name}-0 [4, 6) 2 offsets" in done.output
    assert "topic no longer in Kafka, so not migrated: no-such-topic-0" in done.output
    assert committed_offsets(cluster, f"group-of-{name}", name) == {0: 4}


def test_a_checkpoint_of_another_cluster_is_refused(filled: Filled, checkpoint: WriteCheckpoint, migrate: Migrate) -> None:
    name = filled()
    ahead = migrate(name, checkpoint({name: {0: 11}}), "--execute")
    assert ahead.exit_code == 1
    assert f"{name}-0: offset 11, the log ends at 10" in ahead.output
    fewer = migrate(name, checkpoint({name: {0: 4, 1: 4}}), "--execute")
    assert fewer.exit_code == 1
    assert f"{name}-1: the topic has no such partition" in fewer.output
    elsewhere = migrate(name, checkpoint({"no-such-topic": {0: 1}}), "--execute")
    assert elsewhere.exit_code == 1
    assert "None of the checkpoint's topics exists on these brokers: no-such-topic" in elsewhere.output


def test_what_the_group_has_committed_is_replaced_only_on_request(
    filled: Filled, checkpoint: WriteCheckpoint, migrate: Migrate, cluster: Cluster
) -> None:
    name = filled()
    folder = checkpoint({name: {0: 4}})
    with joined(cluster, f"group-of-{name}", name, 1) as consumer:
        commit(consumer, name, 0, 6)
        busy = migrate(name, folder, "--execute")
    assert busy.exit_code == 1
    assert "has 1 member" in busy.output
    refused = migrate(name, folder, "--execute")
    assert refused.exit_code == 1
    assert f"{name}-0: 6, would become 4" in refused.output
    assert committed_offsets(cluster, f"group-of-{name}", name) == {0: 6}
    assert migrate(name, folder, "--execute", "--overwrite").exit_code == 0
    assert committed_offsets(cluster, f"group-of-{name}", name) == {0: 4}


@pytest.mark.parametrize(
    ("offset", "metadata", "said"),
    [
        (CLAIMED.offset, CLAIMED.metadata(), "have claimed ranges in {}-0"),
        (
            2,
            '{"v":5,"s":"alpha"}',
            "the commit record of {}-0 cannot be read: another version of spark_groupsource wrote it in format 5",
        ),
    ],
    ids=["claims", "a record of another version"],
)
def test_what_other_streams_may_need_is_never_replaced(
    filled: Filled, checkpoint: WriteCheckpoint, migrate: Migrate, cluster: Cluster, offset: int, metadata: str, said: str
) -> None:
    name = filled()
    commit_as_another_client(cluster, f"group-of-{name}", name, offset, metadata)
    refused = migrate(name, checkpoint({name: {0: 6}}), "--execute", "--overwrite")
    assert refused.exit_code == 1
    assert said.format(name) in refused.output
    assert committed_offsets(cluster, f"group-of-{name}", name) == {0: offset}


def test_a_group_may_have_any_name(filled: Filled, checkpoint: WriteCheckpoint, cluster: Cluster, migrate: Migrate) -> None:
    name = filled()
    group = f"[bold]{name}[/b]\x1b"
    done = migrate(name, checkpoint({name: {0: 4}}), "--execute", "--group", group)
    assert done.exit_code == 0, done.output
    assert f"kafka.group.id=[bold]{name}[/b]\\x1b," in done.output
    assert committed_offsets(cluster, group, name) == {0: 4}


@pytest.mark.parametrize(
    ("location", "expected"),
    [("nowhere", "this is not a streaming query's checkpoint"), ("dbfs:/x", "cannot be read: Unrecognized filesystem type")],
)
def test_a_place_without_a_checkpoint_is_named(migrate: Migrate, location: str, expected: str) -> None:
    refused = migrate("t", location)
    assert refused.exit_code == 1
    assert expected in refused.output
    assert location in refused.output
    assert "Traceback" not in refused.output
