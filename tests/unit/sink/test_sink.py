"""The sink's pure parts: rules, names, checksums and columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType

from spark_groupsource.errors import (
    BatchUnknown,
    CheckpointBehindSink,
    RecordRefused,
    ReplayDiffers,
    SchemaError,
    SinkError,
    WrittenElsewhere,
)
from spark_groupsource.sink.batch_size import fitting
from spark_groupsource.sink.checksum import ANY_PARTITION, row_hash
from spark_groupsource.sink.columns import check_columns, rows_of
from spark_groupsource.sink.names import DEFAULT_PREFIX, REACHES, Names, is_query, reaches_of, token_group
from spark_groupsource.sink.native_producer import NativeProducer
from spark_groupsource.sink.pure_producer import PureProducer
from spark_groupsource.sink.rules import (
    NO_CHOICE,
    NOTHING,
    Choice,
    Place,
    Plan,
    after_batch,
    check_batch,
    check_choice,
    check_elsewhere_again,
    check_same,
    is_behind,
    may_be_a_replay,
    plan_task,
)
from spark_groupsource.sink.token import (
    BatchToken,
    Token,
    Written,
)

RUN = "0b5dc8e3-9e4f-4c51-a8f6-000000000000"
QUERY = "5e0bd5ce-5a4a-4d49-a9e1-f1d5a8f9a1d5"
ROWS = Written(10, 0xABC)
SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:1"}
NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": "0", "queue.buffering.max.kbytes": "1024"}

NESTED: Mapping[str, DataType] = {
    "headers": ArrayType(StructType().add("key", "string").add("value", "binary")),
    "map": MapType(StringType(), BinaryType()),
}


def columns(text: str) -> StructType:
    """Read names and types; Spark's own reader of DDL needs a session."""
    schema = StructType()
    for column in text.split(", "):
        name, kind = column.split()
        schema.add(name, NESTED.get(kind, kind))
    return schema


def token(batch: int) -> Token:
    return Token(QUERY, batch, ROWS, RUN)


def driver(batch: int) -> BatchToken:
    return BatchToken(QUERY, batch, 2, 20, RUN)


HAD_ROWS = driver(7)._replace(wrote=frozenset({0}))
"""Task 0 had rows in micro-batch 7."""


class TestBeforeATaskWrites:
    @pytest.mark.parametrize(
        ("number", "batch", "of_task", "of_driver", "plan"),
        [
            pytest.param(0, 8, token(7), None, Plan(True), id="a token of the micro-batch before: nothing is written"),
            pytest.param(0, 100, token(7), None, Plan(True), id="one of an earlier micro-batch: nothing is written"),
            pytest.param(0, 7, token(7), None, Plan(False, ROWS), id="one of this micro-batch says what is written"),
            pytest.param(0, 8, None, driver(7), Plan(True), id="the driver's says that it cannot have expired"),
            pytest.param(0, 7, None, driver(7), Plan(False, NOTHING), id="all tasks have written this one, this task nothing"),
            pytest.param(0, 7, token(3), driver(7), Plan(False, NOTHING), id="the driver's counts beside an older one"),
            pytest.param(1, 8, None, HAD_ROWS, Plan(True), id="a task that had no rows needs no token"),
            pytest.param(0, 8, token(7), HAD_ROWS, Plan(True), id="a task that had rows has its token"),
            pytest.param(0, 0, None, None, Plan(True), id="the first micro-batch needs none"),
        ],
    )
    def test_tokens_say_what_is_written(
        self, number: int, batch: int, of_task: Token | None, of_driver: BatchToken | None, plan: Plan
    ) -> None:
        elsewhere = () if of_task is None and of_driver is None else None
        assert plan_task(f"q-{number}", number, batch, of_task, of_driver, NO_CHOICE, elsewhere) == plan

    @pytest.mark.parametrize(
        ("of_task", "of_driver", "rewrite", "skip"),
        [
            pytest.param(None, HAD_ROWS, Plan(True), Plan(False), id="a task that had rows and has no token"),
            pytest.param(None, None, Plan(True), Plan(False), id="no token at all"),
            pytest.param(token(8), None, Plan(True, ROWS), Plan(False, ROWS), id="what is there is compared"),
            pytest.param(None, driver(8), Plan(True, NOTHING), Plan(False, NOTHING), id="the task had nothing"),
        ],
    )
    def test_a_choice_says_what_becomes_of_its_micro_batch(
        self, of_task: Token | None, of_driver: BatchToken | None, rewrite: Plan, skip: Plan
    ) -> None:
        assert plan_task("q-0", 0, 8, of_task, of_driver, Choice(rewrite=8), ()) == rewrite
        assert plan_task("q-0", 0, 8, of_task, of_driver, Choice(skip=8), ()) == skip

    @pytest.mark.parametrize("choice", [NO_CHOICE, Choice(rewrite=6), Choice(skip=6)], ids=["", "rewritten", "skipped"])
    @pytest.mark.parametrize(
        ("of_task", "of_driver"),
        [(token(7), None), (None, driver(7)), (token(3), driver(7))],
        ids=["the task's", "the driver's", "the driver's beside an older one of the task"],
    )
    def test_a_token_of_a_later_one_is_an_error(
        self, of_task: Token | None, of_driver: BatchToken | None, choice: Choice
    ) -> None:
        with pytest.raises(CheckpointBehindSink, match="micro-batch 7 is in the topic already"):
            plan_task("q-0", 0, 6, of_task, of_driver, choice)

    @pytest.mark.parametrize(
        ("of_driver", "choice"),
        [(HAD_ROWS, NO_CHOICE), (None, NO_CHOICE), (None, Choice(7, 6))],
        ids=["the task had rows", "there is no token", "another micro-batch is chosen"],
    )
    def test_what_may_have_expired_is_refused(self, of_driver: BatchToken | None, choice: Choice) -> None:
        elsewhere = () if of_driver is None else None
        with pytest.raises(BatchUnknown, match=r"(?s)rewriteBatch=8.*skipBatch=8"):
            plan_task("q-0", 0, 8, None, of_driver, choice, elsewhere)


def place(driver_at: int | None, *tasks_at: int, unreadable: bool = False) -> Place:
    return Place(
        "old",
        frozenset({"t"}),
        None if driver_at is None else driver(driver_at),
        {number: token(batch) for number, batch in enumerate(tasks_at)},
        unreadable,
    )


class TestWhatIsElsewhere:
    @pytest.mark.parametrize(
        ("batch", "of_task", "of_driver", "behind"),
        [
            (0, None, None, True),
            (8, None, None, True),
            (8, None, driver(7), False),
            (8, None, driver(8), False),
            (8, None, driver(6), True),
            (8, token(6), driver(6), True),
            (8, token(7), driver(6), True),
            (8, token(8), driver(6), False),
        ],
    )
    def test_is_looked_for_if_the_last_micro_batch_is_not_known_here(
        self, batch: int, of_task: Token | None, of_driver: BatchToken | None, behind: bool
    ) -> None:
        assert is_behind(batch, of_task, of_driver) == behind

    @pytest.mark.parametrize(
        ("batch", "of_driver", "elsewhere"),
        [(0, None, []), (8, None, [place(7, 7, 6)]), (8, driver(4), [place(7, 7), place(3)]), (8, None, [place(7)])],
        ids=["nothing", "the micro-batch before, finished", "and an older one", "without tasks"],
    )
    def test_lets_a_micro_batch_begin(self, batch: int, of_driver: BatchToken | None, elsewhere: list[Place]) -> None:
        assert plan_task("q-0", 0, batch, None, of_driver, NO_CHOICE, elsewhere) == Plan(True)

    @pytest.mark.parametrize(
        ("elsewhere", "error"),
        [
            ([place(7, 8, 7)], WrittenElsewhere),
            ([place(8, 8, 8)], WrittenElsewhere),
            ([place(7, 7), place(None, 8)], WrittenElsewhere),
            ([place(9, 9)], CheckpointBehindSink),
            ([place(6, 6)], BatchUnknown),
            ([place(None, 7)], BatchUnknown),
            ([place(7, 7, unreadable=True)], BatchUnknown),
            ([], BatchUnknown),
        ],
        ids=["half", "whole", "half in one of two", "later", "earlier", "no driver's", "no token of ours", "nothing"],
    )
    def test_refuses_it(self, elsewhere: list[Place], error: type[Exception]) -> None:
        with pytest.raises(error):
            plan_task("q-0", 0, 8, None, None, NO_CHOICE, elsewhere)

    def test_is_half_of_a_micro_batch_after_the_name_was_changed_back(self) -> None:
        with pytest.raises(WrittenElsewhere):
            plan_task("q-0", 0, 8, None, driver(7), NO_CHOICE, [place(7, 8)])
        with pytest.raises(WrittenElsewhere):
            check_elsewhere_again("q", 8, driver(7), [place(7, 8)])
        # A copy of the checkpoint has gone on with another prefix: that is not this one's.
        assert plan_task("q-0", 0, 8, None, driver(7), NO_CHOICE, [place(9, 9)]) == Plan(True)
        check_elsewhere_again("q", 8, driver(7), [place(9, 9)])

    def test_is_looked_at_again_by_the_driver(self) -> None:
        check_elsewhere_again("q", 8, None, [place(7, 7)])
        check_elsewhere_again("q", 8, None, [place(7, 8)], Choice(rewrite=8))
        with pytest.raises(WrittenElsewhere, match="So up to 10 rows are there twice"):
            check_elsewhere_again("q", 8, None, [place(7, 8)])
        with pytest.raises(CheckpointBehindSink):
            check_elsewhere_again("q", 8, None, [place(9)])


class TestAChoice:
    @pytest.mark.parametrize("choice", [Choice(rewrite=8), Choice(skip=8)], ids=["rewrite", "skip"])
    def test_counts_in_the_first_micro_batch_of_a_run(self, choice: Choice) -> None:
        """Later ones were not half written by an earlier run: no error has named them."""
        for last in (None, driver(7)._replace(run="another"), driver(8)):
            check_choice(8, RUN, last, choice, begun=True)
        check_choice(7, RUN, driver(6), choice, begun=True)
        with pytest.raises(SinkError, match="=8 is set, and this run has reached micro-batch 8 by itself"):
            check_choice(8, RUN, driver(7), choice, begun=True)

    def test_that_is_left_from_an_earlier_checkpoint_skips_nothing(self) -> None:
        check_choice(0, RUN, None, Choice(rewrite=0), begun=False)
        with pytest.raises(SinkError, match="has not written anything yet"):
            check_choice(0, RUN, None, Choice(skip=0), begun=False)


class TestAReplay:
    def test_with_the_same_rows_is_the_same(self) -> None:
        assert check_same("q-0", 7, ROWS, ROWS)

    @pytest.mark.parametrize("now", [Written(9, 0xABC), Written(10, 0xABD)])
    def test_with_other_rows_is_refused_unless_the_user_has_chosen(self, now: Written) -> None:
        with pytest.raises(ReplayDiffers, match=r"(?s)10 rows of this task.*rewriteBatch=7.*skipBatch=7"):
            check_same("q-0", 7, ROWS, now)
        with pytest.raises(ReplayDiffers):
            check_same("q-0", 7, ROWS, now, Choice(8, 6))
        assert not check_same("q-0", 7, ROWS, now, Choice(skip=7))

    @pytest.mark.parametrize("task", [0, 2], ids=["a task without rows", "a task that is not there"])
    def test_with_rows_in_fewer_tasks_is_refused_at_the_end(self, task: int) -> None:
        with pytest.raises(ReplayDiffers, match=rf"wrote 10 rows in tasks that have none now \({task}\)"):
            check_batch(7, 2, 20, driver(6), {task: token(7)})
        check_batch(7, 2, 20, driver(6), {task: token(6)})
        check_batch(7, 2, 20, driver(6), {task: token(7)}, Choice(rewrite=7))

    def test_with_other_rows_in_all_is_refused_at_the_end(self) -> None:
        with pytest.raises(ReplayDiffers, match="has 21 rows now, and an earlier try had written all of it with 20"):
            check_batch(7, 2, 21, driver(7), {})
        check_batch(7, 2, 20, driver(7), {})

    def test_of_a_driver_that_another_one_has_overtaken_is_refused(self) -> None:
        with pytest.raises(CheckpointBehindSink):
            check_batch(7, 2, 20, driver(8), {})

    def test_is_possible_in_the_first_micro_batch_of_a_run(self) -> None:
        assert may_be_a_replay(None, RUN)
        assert may_be_a_replay(driver(7), "another")
        assert not may_be_a_replay(driver(7), RUN)

    def test_of_which_the_driver_remembers_the_tasks_with_rows(self) -> None:
        assert after_batch(QUERY, 8, 12, 5, RUN, {11}) == BatchToken(QUERY, 8, 12, 5, RUN, frozenset({11}))


class TestNames:
    NAMES = Names(DEFAULT_PREFIX, QUERY)

    @pytest.mark.parametrize("prefix", ["groupkafka", "a-b", f"x-{QUERY}", "billing-7"])
    def test_say_whose_token_a_group_holds(self, prefix: str) -> None:
        for topic in (None, "invoices"):
            names = Names.of(prefix, QUERY, topic)
            assert token_group(names.driver) == (names, None)
            assert token_group(names.task(12)) == (names, 12)
            assert token_group(names.open(12)) is None
            assert token_group(names.reach(128)) is None

    @pytest.mark.parametrize("group", ["", QUERY, f"-{QUERY}", f"q-{QUERY}-007", f"q-{QUERY}-x", "q-3", f"q-{QUERY[:-1]}"])
    def test_are_nobody_elses(self, group: str) -> None:
        assert token_group(group) is None

    def test_of_reaches_cover_every_task_without_a_gap(self) -> None:
        assert reaches_of(15) == ()
        assert reaches_of(16) == reaches_of(31) == (32,)
        assert reaches_of(32) == (32, 64)
        for number in (16, 127, 128, 200, 1023, 1024, 999_999):
            *below, last = reaches_of(number)
            assert number < last <= 2 * number
            assert below == list(REACHES[: len(below)])

    def test_a_query_is_known_by_its_id(self) -> None:
        assert is_query(QUERY)
        assert not is_query(QUERY + "0")
        assert not is_query("../" + QUERY)


HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TABLE = {
    "key": pa.array([b"a", None, b"", b"abcdefghi"], pa.binary()),
    "value": pa.array(["1", "", None, "äöü" * 7], pa.string()),
    "topic": pa.array(["x", "y", "x", "x"], pa.string()),
    "partition": pa.array([0, None, 2, None], pa.int32()),
    "headers": pa.array([None, [], [{"key": "h", "value": b"1"}, {"key": "", "value": None}], None], HEADERS),
}


class TestTheChecksum:
    @pytest.mark.parametrize("names", [["value"], ["key", "value"], list(TABLE)])
    @pytest.mark.parametrize("wide", [False, True])
    def test_is_the_same_in_c_and_in_python(self, names: list[str], wide: bool) -> None:
        batch = pa.RecordBatch.from_arrays([TABLE[name] for name in names], names=names)
        if wide:
            batch = batch.set_column(names.index("value"), "value", batch["value"].cast(pa.large_string()))
        assert counted(batch) == counted(batch, native=False) != Written(4, 0)

    def test_is_the_same_for_every_size(self) -> None:
        for size in range(140):
            batch = pa.RecordBatch.from_pydict({"value": [bytes(range(size))]})
            assert counted(batch) == counted(batch, native=False)

    @pytest.mark.parametrize(
        ("row", "expected"),
        [
            (("t", ANY_PARTITION, None, None), 0x51CCE87EB670F35A),
            (("t", ANY_PARTITION, None, b""), 0x29AE5B2C210E3EF6),
            (("t", 3, b"k", bytes(range(7))), 0x8936B361500FDDD7),
            (("t", ANY_PARTITION, None, bytes(range(32))), 0x46817CAE90971F65),
            (("t", ANY_PARTITION, b"key", bytes(range(33))), 0x17AA99098ACD75ED),
            (("topic", 0, None, bytes(range(100)), [("h", b"1"), ("", None)]), 0x956CA94711A9B39F),
        ],
    )
    def test_is_the_same_in_every_version(self, row: Any, expected: int) -> None:
        """Another checksum would end each micro-batch that is half written while a query is upgraded."""
        assert row_hash(*row) == expected

    def test_of_a_slice_is_that_of_its_rows(self) -> None:
        batch = pa.RecordBatch.from_pydict(TABLE)
        assert counted(batch.slice(1, 3)) == counted(batch.slice(1, 3), native=False)
        parts = [counted(batch.slice(row, 1)).checksum for row in range(4)]
        assert sum(parts) % 2**64 == counted(batch).checksum

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ({"key": [b"a"], "value": [b"b"]}, {"key": [b"b"], "value": [b"a"]}),
            ({"value": [b""]}, {"value": pa.array([None], pa.binary())}),
            ({"value": [b"a"], "topic": ["x"]}, {"value": [b"a"], "topic": ["y"]}),
            ({"value": [b"a"], "partition": pa.array([0], pa.int32())}, {"value": [b"a"]}),
        ],
    )
    def test_of_other_rows_is_another(self, one: Mapping[str, object], other: Mapping[str, object]) -> None:
        assert counted(pa.RecordBatch.from_pydict(dict(one))) != counted(pa.RecordBatch.from_pydict(dict(other)))

    @pytest.mark.parametrize("before", [b"", bytes(32)])
    def test_of_rows_that_swap_values_with_another_top_bit_in_the_last_word_is_another(self, before: bytes) -> None:
        """A swap is not seen if the bit changes the hashes of both rows by the same number."""
        one, other = before + b"1234567\x01", before + b"1234567\x81"
        keys = [number.to_bytes(4, "big") for number in range(10_000)]
        changes = {(row_hash("t", -1, key, one) - row_hash("t", -1, key, other)) % 2**64 for key in keys}
        assert len(changes) == len(keys)


def counted(batch: pa.RecordBatch, *, native: bool = True) -> Written:
    """Count rows without writing them."""
    topic = None if "topic" in batch.schema.names else "t"
    producer = NativeProducer(NOWHERE, topic) if native else PureProducer(NOWHERE, topic)
    producer.count(rows_of(batch, topic))
    found = producer.written
    producer.close()
    return found


class TestTheSizeOfBatches:
    @pytest.mark.parametrize(
        ("wanted", "limits", "size"),
        [
            (None, [1_048_588], 1_000_000),
            (None, [5_000], 5_000),
            (None, [1_048_588, 5_000], 5_000),
            (None, [None], 16_384),
            (None, [1_048_588, None], 16_384),
            (None, [5_000, None], 5_000),
            (3_000, [5_000], 3_000),
            (50_000, [5_000], 5_000),
            (50_000, [None], 50_000),
            (None, [0], 1),
        ],
    )
    def test_is_what_every_topic_takes(self, wanted: int | None, limits: list[int | None], size: int) -> None:
        assert fitting(wanted, limits) == size


class TestColumns:
    @pytest.mark.parametrize(
        "ddl",
        [
            "value string",
            "value binary, key string",
            "VALUE binary, topic string, partition integer, headers headers",
            "value string, offset long",
        ],
    )
    def test_of_sparks_own_sink_are_accepted(self, ddl: str) -> None:
        check_columns(columns(ddl), "t")

    @pytest.mark.parametrize(
        ("ddl", "said"),
        [
            ("key string", "column value is missing"),
            ("value integer", "value cannot be INT: it must be STRING or BINARY"),
            ("value string, key double", "key cannot be DOUBLE"),
            ("value string, topic binary", "topic cannot be BINARY: it must be STRING"),
            ("value string, partition long", "partition cannot be BIGINT: it must be INT"),
            ("value string, headers map", "headers cannot be MAP"),
        ],
    )
    def test_that_cannot_be_written_are_refused(self, ddl: str, said: str) -> None:
        with pytest.raises(SchemaError, match=said):
            check_columns(columns(ddl), "t")

    def test_a_topic_is_needed(self) -> None:
        with pytest.raises(SchemaError, match="set the option topic"):
            check_columns(columns("value string"), None)
        check_columns(columns("value string, topic string"), None)

    def test_the_option_takes_the_place_of_the_column(self) -> None:
        batch = pa.RecordBatch.from_pydict({"value": ["1"], "topic": ["x"]})
        assert rows_of(batch, "t").schema.names == ["value"]
        assert rows_of(batch, None).schema.names == ["value", "topic"]

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"value": ["1"], "topic": pa.array([None], pa.string())}, "has no topic"),
            ({"value": ["1"], "topic": ["orders\0evil"]}, "no name of a topic"),
            ({"value": ["1"], "topic": [""]}, "no name of a topic"),
            ({"value": ["1"], "topic": ["x" * 250]}, "no name of a topic"),
            ({"value": ["1"], "topic": [".."]}, "no name of a topic"),
            ({"value": ["1"], "topic": pa.array([b"\xff"], pa.binary()).view(pa.string())}, "no name of a topic"),
            ({"value": ["1"], "topic": ["x"], "partition": pa.array([-1], pa.int32())}, "partition below 0"),
            (
                {"value": ["1"], "topic": ["x"], "headers": pa.array([[{"key": None, "value": b"1"}]], HEADERS)},
                "header without a key",
            ),
        ],
    )
    def test_rows_that_kafka_cannot_have_are_refused(self, given: Mapping[str, object], said: str) -> None:
        with pytest.raises(RecordRefused, match=said):
            rows_of(pa.RecordBatch.from_pydict(dict(given)), None)

    def test_views_and_dictionaries_are_written_as_what_they_hold(self) -> None:
        plain = pa.RecordBatch.from_pydict({"value": ["a", None, "c"], "topic": ["x", "y", "x"]})
        views = pa.RecordBatch.from_pydict(
            {
                "value": plain.column(0).cast(pa.string_view()),
                "topic": plain.column(1).dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string())),
            }
        )
        assert counted(views) == counted(plain) == counted(views, native=False)

    def test_views_in_headers_are_written_as_what_they_hold(self) -> None:
        def rows(key: pa.DataType, value: pa.DataType) -> pa.RecordBatch:
            headers = [[{"Key": "k", "value": b"v"}, {"Key": "a key of more than twelve bytes", "value": None}], None, []]
            kind = pa.list_(pa.struct([("Key", key), ("value", value)]))
            return pa.RecordBatch.from_pydict({"value": ["a", "b", "c"], "headers": pa.array(headers, kind), "topic": ["x"] * 3})

        plain, views = rows(pa.string(), pa.binary()), rows(pa.string_view(), pa.binary_view())
        assert counted(views) == counted(plain) == counted(views, native=False)
