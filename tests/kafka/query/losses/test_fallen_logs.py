"""A log that falls back and grows again past a query's position: running, restarted, with both values of failOnDataLoss."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient

from devtools.broker import Cluster
from spark_groupsource.brokers.client_pool import pool
from spark_groupsource.brokers.group_admin import GroupAdmin
from spark_groupsource.brokers.offsets import LATEST_OFFSET, epoch_of, request_offsets
from spark_groupsource.errors import DataLossError
from spark_groupsource.fetch import native_consumer as native
from spark_groupsource.fetch import pure_consumer as pure
from spark_groupsource.fetch.arrow_schema import arrow_schema
from spark_groupsource.fetch.contract import FetchRange, FetchSettings, Reader
from spark_groupsource.fetch.native_shared import read_all
from spark_groupsource.handoff.commit_record import Foreign
from spark_groupsource.options.client_settings import consumer_settings
from spark_groupsource.options.model import Options
from spark_groupsource.partition import TopicPartition
from spark_groupsource.query.batch_plan import plan_batch
from spark_groupsource.spark import task
from tests.conftest import KEEP_ALL, NOT_FENCED, SHORT_SESSIONS
from tests.kafka.conftest import SHORT_TIMES, Query
from tests.kafka.query.losses.conftest import GOES_ON
from tests.support.fallen_logs import Replicas, copied, write
from tests.support.fetching import NATIVE, warnings_of
from tests.support.waiting import until

SOON = {"kafkaConsumer.pollTimeoutMs": "3000"}
"""A log that was cut is believed after so many ms."""

QUERIES = [(running, fails) for running in (True, False) for fails in (True, False)]
READERS = {"pure": pure.read, "native": native.read}
EITHER_READER = pytest.mark.parametrize("name", ["pure", pytest.param("native", marks=NATIVE)])

CUT_AT, READ_TO, END = 100, 200, 249

BELOW = 95
"""The end of a range that lies below CUT_AT."""


@dataclass
class Begun:
    """A task that began to read [0, 200) before the log fell back, and fetches little ahead."""

    found: list[bytes]
    batches: Iterator[pa.RecordBatch]

    def take(self) -> bool:
        batch = next(self.batches, None)
        self.found += [] if batch is None else batch.column("value").to_pylist()
        return batch is not None


@dataclass
class Fallen:
    """Logs that were cut off at CUT_AT when queries had read up to READ_TO, and have grown up to END since."""

    cluster: Cluster
    topics: list[str]
    queries: list[Query]
    target: Query
    tasks: dict[tuple[str, bool | str], Begun] = field(default_factory=dict)
    epoch: int = -1
    """The leader epoch before."""

    def using(self, *, fails: bool = True, **client: str) -> FetchSettings:
        given = {"bootstrap.servers": self.cluster.bootstrap_servers, "group.id": "tasks", **client}
        return FetchSettings(
            consumer_settings(given, 64 * 1024 * 1024),
            arrow_schema(include_headers=False),
            fail_on_data_loss=fails,
            poll_timeout_ms=30_000,
            buffer_bytes=8 * 100_000,
        )

    def kept(self, name: str) -> FetchSettings:
        """Of a task whose consumer reads far ahead."""
        far = {"queued.max.messages.kbytes": "500", "max.partition.fetch.bytes": "500000"}
        return self.using(fails=True, **far, **{"client.id": f"{name}-kept"})

    def range(self, start: int, end: int, number: int = 0) -> FetchRange:
        return FetchRange(self.topics[number], 0, start, end, self.epoch)


def query(cluster: Cluster, topic: str, **more: str) -> Query:
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "kafka.group.id": f"group-of-{topic}", **SHORT_TIMES}
    return Query({**options, "subscribe": topic, "startingOffsets": "earliest", **SOON, **more})


def begin(cluster: Cluster, topics: list[str], grow: Callable[[int, bytes], None], at_first: int) -> Fallen:
    """Have queries and tasks read up to READ_TO; the logs end at `at_first`."""
    made = [query(cluster, topic, **({} if fails else GOES_ON)) for topic, (_, fails) in zip(topics, QUERIES, strict=False)]
    target = query(cluster, topics[4], maxOffsetsPerTrigger="50")
    batch = query(cluster, topics[6])
    fallen = Fallen(cluster, topics, made, target)
    if at_first < READ_TO:
        for one in (*made, batch):
            assert one.run_batch() == {0: (0, at_first)}
        grow(READ_TO - at_first, b"lost")
    for one, running in ((batch, False), *((one, running) for one, (running, _) in zip(made, QUERIES, strict=True))):
        assert one.run_batch()[0][1] == READ_TO
        assert not one.plan(), "this confirms the plan"
        if not running:
            one.cycle.stop()
    target.cycle.fix_target()
    assert target.run_batch() == {0: (0, 50)}
    partition = TopicPartition(topics[0], 0)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    epoch = epoch_of(request_offsets(admin, {partition: LATEST_OFFSET}, 30)[partition].result())
    assert epoch is not None
    fallen.epoch = epoch
    little = {"queued.max.messages.kbytes": "100", "queued.min.messages": "1", "max.partition.fetch.bytes": "100000"}
    for name, read in READERS.items():
        for known in (True, False):
            what = FetchRange(topics[5], 0, 0, READ_TO, epoch if known else None)
            how = fallen.using(fails=False, **little, **{"client.id": f"{name}-{known}"})
            begun = fallen.tasks[name, known] = Begun([], iter(read(what, how)))
            while begun.take() and not known and len(begun.found) <= CUT_AT:
                pass
            assert len(begun.found) < (CUT_AT if known else READ_TO)
        # It has fetched beyond CUT_AT, and only up to BELOW is its matter.
        kept = fallen.tasks[name, "kept"] = Begun([], iter(read(fallen.range(0, BELOW, 5), fallen.kept(name))))
        while len(kept.found) < BELOW - 20:
            assert kept.take()
        assert len(kept.found) < BELOW
    return fallen


@pytest.fixture(scope="module", params=["a restored disk", pytest.param("an unclean election", marks=pytest.mark.long)])
def fallen(request: pytest.FixtureRequest) -> Iterator[Fallen]:
    """Each way in which a log falls back."""
    topics = [f"topic-{number}" for number in range(7)]
    values = {topics[5]: 10_000}

    def grow(cluster: Cluster) -> Callable[[int, bytes], None]:
        def write_all(count: int, value: bytes) -> None:
            for name in topics:
                write(cluster, name, count, value * values.get(name, 1))

        return write_all

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("spark_groupsource.query.cycle.AT_STOP_S", 0.0)
        if request.param == "a restored disk":
            with Cluster(config={**SHORT_SESSIONS, **NOT_FENCED, **KEEP_ALL}) as one:
                for name in topics:
                    one.create_topic(name)
                grow(one)(CUT_AT, b"o")
                with copied(one, *topics) as disk:
                    grow(one)(READ_TO - CUT_AT, b"l")
                    made = begin(one, topics, grow(one), READ_TO)
                    disk.restore()
                    grow(one)(END - CUT_AT, b"n")
                    yield from _until_done(made)
        else:
            with Cluster(nodes=3, config={**SHORT_SESSIONS, **KEEP_ALL}) as three:
                replicas = Replicas(three, *topics)
                grow(three)(CUT_AT, b"o")

                def fall_behind(count: int, value: bytes) -> None:
                    replicas.fall_behind()
                    grow(three)(count, value[:1])

                made = begin(three, topics, fall_behind, CUT_AT)
                replicas.fall_back()
                grow(three)(END - CUT_AT, b"n")
                yield from _until_done(made)


def _until_done(made: Fallen) -> Iterator[Fallen]:
    try:
        yield made
    finally:
        for one in (*made.queries, made.target):
            one.cycle.stop()
        made.tasks.clear()
        pool().close_kept()


@pytest.mark.parametrize("number", range(len(QUERIES)), ids=[f"running={runs} fails={fails}" for runs, fails in QUERIES])
def test_a_query_ends_or_reads_the_log_as_it_is_now(fallen: Fallen, number: int, caplog: pytest.LogCaptureFixture) -> None:
    one, topic, (running, fails) = fallen.queries[number], fallen.topics[number], QUERIES[number]
    if not running:
        one.restart()
    lost = rf"{topic}-0 \[100, 200\) \(100 offsets\): the next offset to read was 200, and the log was truncated at 100"
    if fails:
        with pytest.raises(DataLossError, match=lost):
            until(lambda: one.plan() and False, "the query ends")
    else:
        assert one.run_batch() == {0: (CUT_AT, END)}, "each record of the log as it is now, once"
        assert re.search(lost + ".*the query will continue at 100", caplog.text)
        assert not one.plan()


def test_a_run_of_available_now_ends_whose_target_was_cut_off(fallen: Fallen) -> None:
    with pytest.raises(DataLossError, match=rf"AvailableNow(.|\n)*{fallen.topics[4]}-0 \[100, 200\)"):
        until(lambda: fallen.target.plan() and False, "the query ends")


@EITHER_READER
def test_a_task_reads_only_what_was_planned(fallen: Fallen, name: str, caplog: pytest.LogCaptureFixture) -> None:
    read: Reader = READERS[name]
    with pytest.raises(DataLossError, match=r"\[100, 200\): the log was truncated at 100 or below.*failOnDataLoss"):
        _offsets(read(fallen.range(50, 200), fallen.using()))
    assert _offsets(read(fallen.range(50, 200), fallen.using(fails=False))) == list(range(50, 100))
    assert "offsets [100, 200): the log was truncated at 100 or below" in warnings_of(caplog)
    assert _offsets(read(fallen.range(150, 200), fallen.using(fails=False))) == []
    assert _offsets(read(fallen.range(50, 100), fallen.using())) == list(range(50, 100)), "what comes after it is not its matter"


@NATIVE
def test_a_shared_task_reads_only_what_was_planned(fallen: Fallen, caplog: pytest.LogCaptureFixture) -> None:
    ranges = [fallen.range(90, 110, 0), fallen.range(120, 130, 1), fallen.range(20, 30, 2)]
    with pytest.raises(DataLossError, match=r"\[1[02]0, 1[13]0\): the log was truncated at"):
        _offsets(read_all(ranges, fallen.using()))
    assert _offsets(read_all(ranges, fallen.using(fails=False))) == [*range(20, 30), *range(90, 100)]
    assert warnings_of(caplog).count("the log was truncated at") == 2


@EITHER_READER
@pytest.mark.parametrize("known", [True, False], ids=["epoch is known", "librdkafka finds out"])
def test_a_task_that_reads_meanwhile_takes_nothing_of_the_other_log(
    fallen: Fallen, name: str, known: bool, caplog: pytest.LogCaptureFixture
) -> None:
    begun = fallen.tasks[name, known]
    while begun.take():
        pass
    assert {value[:1] for value in begun.found} <= {b"o", b"l"}
    assert len(begun.found) == CUT_AT if known else CUT_AT < len(begun.found) < READ_TO, len(begun.found)
    assert "the log was truncated at 100 or below" in warnings_of(caplog)


@EITHER_READER
def test_a_task_loses_nothing_because_its_consumer_had_read_further_for_an_earlier_one(fallen: Fallen, name: str) -> None:
    earlier = fallen.tasks[name, "kept"]
    while earlier.take():
        pass
    assert len(earlier.found) == BELOW
    assert _offsets(READERS[name](fallen.range(20, BELOW, 5), fallen.kept(name))) == list(range(20, BELOW))


def test_a_batch_read_commits_nothing_where_the_log_was_cut_off_meanwhile(
    fallen: Fallen, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "log_to_stderr", lambda: None)
    client = {"bootstrap.servers": fallen.cluster.bootstrap_servers}
    group = GroupAdmin(client)
    committed = {}
    for end in (90, READ_TO):
        group_id = f"batch-{end}"
        reader = task.TaskReader(fallen.using(fails=False, **{"group.id": group_id}), client)
        parts = task.RangePartition((fallen.range(40, 60), fallen.range(70, end)), commit=end)
        assert _offsets(reader.read(parts)) == [*range(40, 60), *range(70, min(end, CUT_AT))]
        committed[end] = {partition.topic: commit for partition, commit in group.commits(group_id).items()}
    assert committed == {90: {fallen.topics[0]: Foreign(90)}, READ_TO: {}}
    assert "so offset 200 was not committed for group batch-200" in warnings_of(caplog)


def test_a_batch_read_from_the_commits_ends_or_reads_the_log_as_it_is_now(fallen: Fallen) -> None:
    topic = fallen.topics[6]
    options = {
        "kafka.bootstrap.servers": fallen.cluster.bootstrap_servers,
        "kafka.group.id": f"group-of-{topic}",
        "subscribe": topic,
        "startingOffsets": "committed",
        **SOON,
    }
    with pytest.raises(DataLossError, match=rf"{topic}-0 \[100, 200\) .*the log was truncated at 100"):
        plan_batch(Options.parse(options, "batch"))
    (task,) = plan_batch(Options.parse({**options, **GOES_ON}, "batch"))
    assert [(one.start, one.end) for one in task.ranges] == [(CUT_AT, END)]
    assert [one.epoch is not None and one.epoch > fallen.epoch for one in task.ranges] == [True]


def _offsets(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return sorted(offset for batch in batches for offset in batch.column("offset").to_pylist())
