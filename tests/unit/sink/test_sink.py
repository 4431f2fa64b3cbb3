"""The sink's pure parts: tokens, rules, checksums, columns and options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType

from spark_groupsource.errors import (
    BatchUnknown,
    CheckpointBehindSink,
    OptionError,
    RecordRefused,
    ReplayDiffers,
    SchemaError,
    TokenUnreadable,
)
from spark_groupsource.options.sink_model import SinkOptions
from spark_groupsource.sink.batch_size import fitting
from spark_groupsource.sink.checksum import ANY_PARTITION, row_hash
from spark_groupsource.sink.columns import check_columns, rows_of
from spark_groupsource.sink.native_producer import NativeProducer
from spark_groupsource.sink.pure_producer import PureProducer
from spark_groupsource.sink.rules import NOTHING, after_batch, check_batch, is_same, may_be_a_replay, written_before
from spark_groupsource.sink.token import BatchToken, Committed, Token, Written, newest_batch_token, newest_token

RUN = "0b5dc8e3-9e4f-4c51-a8f6-000000000000"
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
    return Token(batch, ROWS, RUN)


def driver(batch: int) -> BatchToken:
    return BatchToken(batch, 2, 20, RUN)


class TestTokens:
    def test_the_newest_of_several_topics_counts_and_comes_back_as_it_was_committed(self) -> None:
        found = [Committed(one.offset, one.metadata()) for one in (token(3), token(5), token(4))]
        assert newest_token(found, "g") == token(5)

    def test_there_may_be_none(self) -> None:
        assert newest_token([], "g") is None
        assert newest_batch_token([], "g") is None

    @pytest.mark.parametrize(
        "metadata",
        [
            "",
            "{",
            "[]",
            "{}",
            '{"v":1,"rows":1,"sum":"00"}',
            '{"v":1,"rows":-1,"sum":"0000000000000abc","run":""}',
            '{"v":1,"rows":true,"sum":"0000000000000abc","run":""}',
            '{"v":1,"rows":1,"sum":"0000000000000ABC","run":""}',
            '{"v":1,"rows":1,"sum":"0000000000000abc","run":"<script>"}',
            '{"v":1,"rows":1,"sum":"0000000000000abc","run":"","more":1}',
            '{"v":"1","rows":1,"sum":"0000000000000abc","run":""}',
            "[" * 5000,
            '{"v":1,"rows":1,"sum":"0000000000000abc","run":"' + "0" * 600 + '"}',
        ],
    )
    def test_what_another_client_wrote_is_refused(self, metadata: str) -> None:
        with pytest.raises(TokenUnreadable, match="no other client may commit"):
            newest_token([Committed(4, metadata)], "g")

    def test_an_offset_that_no_token_has_is_refused(self) -> None:
        with pytest.raises(TokenUnreadable):
            newest_token([Committed(0, token(0).metadata())], "g")

    @pytest.mark.parametrize(
        ("had", "text"), [(range(200), "[[0,200]]"), ({0, 1, 5}, "[[0,2],[5,6]]"), ((), "[]"), (range(0, 4000, 2), "null")]
    )
    def test_the_drivers_says_which_tasks_had_rows_if_there_is_room(self, had: Iterable[int], text: str) -> None:
        given = driver(7)._replace(had=frozenset(had))
        assert f'"had":{text}' in given.metadata()
        assert len(given.metadata()) < 4000
        read = newest_batch_token([Committed(given.offset, given.metadata())], "g")
        assert read == given._replace(had=None if text == "null" else frozenset(had))

    @pytest.mark.parametrize("had", ["7", "[7]", "[[1,2,3]]", "[[0,1000001]]", "[[-1,2]]", "[[0,true]]", '[["0","1"]]'])
    def test_what_another_client_wrote_about_tasks_is_refused(self, had: str) -> None:
        text = driver(7).metadata().replace('"had":null', f'"had":{had}')
        with pytest.raises(TokenUnreadable):
            newest_batch_token([Committed(8, text)], "g")

    def test_a_newer_format_says_so(self) -> None:
        with pytest.raises(TokenUnreadable, match="newer version"):
            newest_token([Committed(4, '{"v":2,"anything":1}')], "g")


HAD_ROWS = driver(7)._replace(had=frozenset({0}))
"""Task 0 had rows in micro-batch 7."""


class TestBeforeATaskWrites:
    @pytest.mark.parametrize(
        ("number", "batch", "of_task", "of_driver", "accepted", "written"),
        [
            pytest.param(0, 8, token(7), None, None, None, id="a token of the micro-batch before: nothing is written"),
            pytest.param(0, 100, token(7), None, None, None, id="one of an earlier micro-batch: nothing is written"),
            pytest.param(0, 7, token(7), None, None, ROWS, id="one of this micro-batch says what is written"),
            pytest.param(0, 8, None, driver(7), None, None, id="the driver's says that it cannot have expired"),
            pytest.param(0, 7, None, driver(7), None, NOTHING, id="all tasks have written this micro-batch, this one nothing"),
            pytest.param(0, 7, token(3), driver(7), None, NOTHING, id="the driver's counts beside an older one of the task"),
            pytest.param(0, 8, None, HAD_ROWS, 8, None, id="a task that had rows and has no token is accepted"),
            pytest.param(1, 8, None, HAD_ROWS, None, None, id="a task that had no rows needs no token"),
            pytest.param(0, 8, token(7), HAD_ROWS, None, None, id="a task that had rows has its token"),
            pytest.param(0, 0, None, None, None, None, id="the first micro-batch needs none"),
            pytest.param(0, 8, None, None, 8, None, id="a later one without any is accepted"),
        ],
    )
    def test_tokens_say_what_is_written(
        self,
        number: int,
        batch: int,
        of_task: Token | None,
        of_driver: BatchToken | None,
        accepted: int | None,
        written: Written | None,
    ) -> None:
        assert written_before(f"q-{number}", number, batch, of_task, of_driver, accepted) == written

    @pytest.mark.parametrize("accepted", [None, 6], ids=["", "it cannot be accepted"])
    @pytest.mark.parametrize(
        ("of_task", "of_driver"),
        [(token(7), None), (None, driver(7)), (token(3), driver(7))],
        ids=["the task's", "the driver's", "the driver's beside an older one of the task"],
    )
    def test_a_token_of_a_later_one_is_an_error(
        self, of_task: Token | None, of_driver: BatchToken | None, accepted: int | None
    ) -> None:
        with pytest.raises(CheckpointBehindSink, match="micro-batch 7 is in the topic already"):
            written_before("q-0", 0, 6, of_task, of_driver, accepted)

    @pytest.mark.parametrize(
        ("of_driver", "accepted"),
        [(HAD_ROWS, None), (None, None), (None, 7)],
        ids=["the task had rows", "there is no token", "another micro-batch is accepted"],
    )
    def test_what_may_have_expired_is_refused(self, of_driver: BatchToken | None, accepted: int | None) -> None:
        with pytest.raises(BatchUnknown, match="acceptBatch=8"):
            written_before("q-0", 0, 8, None, of_driver, accepted)


class TestAReplay:
    def test_with_the_same_rows_is_the_same(self) -> None:
        assert is_same("q-0", 7, ROWS, ROWS, None)

    @pytest.mark.parametrize("now", [Written(9, 0xABC), Written(10, 0xABD)])
    def test_with_other_rows_is_refused_and_can_be_accepted(self, now: Written) -> None:
        with pytest.raises(ReplayDiffers, match="acceptBatch=7"):
            is_same("q-0", 7, ROWS, now, None)
        with pytest.raises(ReplayDiffers):
            is_same("q-0", 7, ROWS, now, 8)
        assert not is_same("q-0", 7, ROWS, now, 7)

    @pytest.mark.parametrize("task", [0, 2], ids=["a task without rows", "a task that is not there"])
    def test_with_rows_in_fewer_tasks_is_refused_at_the_end(self, task: int) -> None:
        with pytest.raises(ReplayDiffers, match=f"wrote 10 rows in task {task}, which has none now"):
            check_batch(7, 2, 20, driver(6), {task: token(7)}, None)
        check_batch(7, 2, 20, driver(6), {task: token(6)}, None)
        check_batch(7, 2, 20, driver(6), {task: token(7)}, 7)

    def test_with_other_rows_in_all_is_refused_at_the_end(self) -> None:
        with pytest.raises(ReplayDiffers, match="has 21 rows, and an earlier try wrote 20"):
            check_batch(7, 2, 21, driver(7), {}, None)
        check_batch(7, 2, 20, driver(7), {}, None)

    def test_of_a_driver_that_another_one_has_overtaken_is_refused(self) -> None:
        with pytest.raises(CheckpointBehindSink):
            check_batch(7, 2, 20, driver(8), {}, None)

    def test_is_possible_in_the_first_micro_batch_of_a_run(self) -> None:
        assert may_be_a_replay(None, RUN)
        assert may_be_a_replay(driver(7), "another")
        assert not may_be_a_replay(driver(7), RUN)

    def test_of_which_the_driver_remembers_the_tasks_with_rows(self) -> None:
        assert after_batch(8, 2, 5, RUN, ()) == BatchToken(8, 2, 5, RUN, frozenset({0, 1}))
        assert after_batch(8, 12, 5, RUN, range(11)) == BatchToken(8, 12, 5, RUN, frozenset({11}))


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


class TestOptions:
    def test_a_stream_writes_exactly_once_and_a_batch_at_least_once(self) -> None:
        options = SinkOptions.parse({**SERVERS, "topic": "orders"}, "stream")
        assert options.sink_settings("stream").exactly_once
        assert not options.sink_settings("batch").exactly_once

    def test_javas_names_are_translated(self) -> None:
        given = {
            "kafka.acks": "all",
            "kafka.batch.size": "16384",
            "kafka.buffer.memory": "33554432",
            "kafka.compression.type": "lz4",
            "kafka.delivery.timeout.ms": "60000",
            "kafka.linger.ms": "0",
            "kafka.max.block.ms": "5000",
            "kafka.max.request.size": "2000000",
            "kafka.transaction.timeout.ms": "70000",
        }
        producer = SinkOptions.parse({**SERVERS, **given}, "stream").sink_settings("stream").producer
        assert producer["queue.buffering.max.kbytes"] == "32768"
        assert producer["message.timeout.ms"] == "60000"
        assert producer["topic.metadata.propagation.max.ms"] == "5000"
        assert producer["message.max.bytes"] == "2000000"
        assert producer["compression.type"] == "lz4"
        NativeProducer({**producer, "transactional.id": "t", "log_level": "0"}, "t").close()

    @pytest.mark.parametrize("given", [{"kafka.acks": "1"}, {"kafka.retries": "0"}, {"kafka.max.in.flight": "6"}], ids=str)
    def test_what_excludes_an_idempotent_producer_turns_it_off_as_in_java(self, given: Mapping[str, str]) -> None:
        producer = SinkOptions.parse({**SERVERS, **given}, "batch").sink_settings("batch").producer
        assert producer["enable.idempotence"] == "false"
        NativeProducer({**producer, "log_level": "0"}, "t").close()

    def test_delivery_fits_into_a_short_transaction(self) -> None:
        given = {**SERVERS, "kafka.transaction.timeout.ms": "30000"}
        producer = SinkOptions.parse(given, "stream").sink_settings("stream").producer
        NativeProducer({**producer, "transactional.id": "t", "log_level": "0"}, "t").close()

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"kafka.transactional.id": "x"}, "set the option transactionalIdPrefix"),
            ({"kafka.key.serializer": "x"}, "serialize them with DataFrame operations"),
            ({"kafka.group.id": "x"}, "it is a consumer's setting"),
            ({"kafka.lingr.ms": "1"}, "Did you mean kafka.linger.ms"),
            ({"kafka.partitioner.class": "x"}, "kafka.partitioner"),
            ({"kafka.buffer.memory": "many"}, "a number of bytes"),
            ({"kafka.max.in.flight": "6"}, "kafka.max.in.flight.requests.per.connection=6 excludes exactly-once"),
            (
                {"deliveryGuarantee": "at-least-once", "kafka.enable.idempotence": "true", "kafka.acks": "1"},
                "kafka.acks=1 excludes kafka.enable.idempotence=true",
            ),
            ({"kafka.linger.ms": "1000", "kafka.delivery.timeout.ms": "1000"}, r"kafka.linger.ms \(1000 ms\) must be less"),
            ({"kafka.enable.idempotence": "false"}, "excludes exactly-once"),
            ({"deliveryGuarantee": "maybe"}, "exactly-once or at-least-once is expected"),
            ({"deliveryGuarantee": "at-least-once", "acceptBatch": "1"}, "acceptBatch is for streams"),
            ({"transactionalIdPrefix": "a b"}, "letters, digits"),
            ({"topic": "a,b"}, "add the column topic"),
            ({"topics": "a"}, "Did you mean topic"),
            ({"kafka.transaction.timeout.ms": "1000", "kafka.delivery.timeout.ms": "2000"}, "is longer than"),
            ({"kafka.delivery.timeout.ms": "1000000"}, r"kafka.delivery.timeout.ms \(1000000 ms\) is longer than"),
            (
                {"kafka.transaction.timeout.ms": "5000", "kafka.request.timeout.ms": "9000"},
                r"request.timeout.ms \(9000 ms\) is longer",
            ),
            ({"kafka.delivery.timeout.ms": "0"}, "would wait without end"),
            ({"kafka.max.request.size": "50000000"}, r"kafka.buffer.memory \(33554432 bytes\) is less than"),
        ],
    )
    def test_mistakes_are_named(self, given: Mapping[str, str], said: str) -> None:
        with pytest.raises(OptionError, match=said):
            SinkOptions.parse({**SERVERS, "topic": "orders", **given}, "stream")

    def test_a_batch_write_cannot_be_exactly_once(self) -> None:
        with pytest.raises(OptionError, match="is for streams"):
            SinkOptions.parse({**SERVERS, "deliveryGuarantee": "exactly-once"}, "batch")

    def test_no_secret_is_shown(self) -> None:
        given = {
            **SERVERS,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.username": "u",
            "kafka.sasl.password": "hunter2",
        }
        options = SinkOptions.parse(given, "stream")
        assert "hunter2" not in repr(options) + str(options) + repr(options.sink_settings("stream"))
        assert options.sink_settings("stream").producer["sasl.password"] == "hunter2"
