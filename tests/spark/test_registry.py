"""conf/registry.py: Avro and Protobuf in Confluent's wire format, with a real registry."""

from __future__ import annotations

import functools
import importlib.util
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.spark_jars import spark_format_jars
from devtools.broker import Cluster
from spark_groupsource import read_properties
from tests.conftest import MakeTopic, Produce
from tests.support.registry import Registry, registry
from tests.support.spark_process import ROOT
from tests.support.waiting import until

spec = importlib.util.spec_from_file_location("registry_program", ROOT / "conf" / "registry.py")
assert spec is not None
assert spec.loader is not None
program: Any = importlib.util.module_from_spec(spec)
spec.loader.exec_module(program)

PASSWORD = "8d1f-only-here"  # noqa: S105
NO_FORMAT = "not in Confluent's wire format"
NO_SUCH_ID = "the registry does not know the schema id"
UNREADABLE = "cannot be read with its schema and the reader's"
UNKNOWN = b"\0" + (4711).to_bytes(4, "big")
TOO_HIGH = b"\0\xff\xff\xff\xff\2"

ORDER: dict[str, Any] = {"type": "record", "name": "Order", "namespace": "shop", "fields": [{"name": "id", "type": "long"}]}
NOTE = {"name": "note", "type": ["null", "string"], "default": None}
CUSTOMER = {"type": "record", "name": "Customer", "namespace": "shop", "fields": [{"name": "city", "type": "string"}]}
BUYER = {"name": "buyer", "type": ["null", "Customer"], "default": None}

JSON = '{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}'
PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "confluent/meta.proto";
%s
message Order {
  message Line { string item = 1; }
  int64 id = 1 [(confluent.field_meta).doc = "of the shop"];
  repeated Line lines = 2;
  google.protobuf.Timestamp at = 3;
  %s
}
"""

Encode = Callable[[Mapping[str, Any]], bytes]


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture
def client(schemas: Registry) -> Iterator[SchemaRegistryClient]:
    with closing(SchemaRegistryClient({"url": schemas.url})) as made:
        yield made


class Run:
    """The program with a topic, a checkpoint and an output of its own."""

    def __init__(self, spark: SparkSession, folder: Path, options: Mapping[str, str]) -> None:
        text = "\n".join(f"{name} = {value}" for name, value in options.items())
        (folder / "registry.properties").write_text(text)
        self.options = read_properties(folder / "registry.properties")
        self._spark, self._folder = spark, folder
        self.decoder = program.connected(self.options)

    def start(self, **trigger: Any) -> StreamingQuery:
        folders = (str(self._folder / "checkpoint"), str(self._folder / "output"))
        query: StreamingQuery = program.start(self._spark, self.decoder, self.options, *folders, **trigger)
        return query

    def rows(self, table: str) -> dict[int, dict[str, Any]]:
        """Return the rows of each finished write, by offset."""
        done = sorted((self._folder / "output" / table).glob("batch=*/_SUCCESS"))
        rows = [row for one in done for row in pq.read_table(one.parent, partitioning=None).to_pylist()]
        found = {row["offset"]: row for row in rows}
        assert len(found) == len(rows), "a record is duplicated"
        return found

    def until(self, query: StreamingQuery, count: int) -> None:
        def there() -> bool:
            if not query.isActive and (error := query.exception()) is not None:
                raise error
            return len(self.rows("records")) + len(self.rows("dead-letters")) == count

        until(there, f"{count} records", 240)

    def reasons(self) -> dict[int, str]:
        return {offset: row["reason"] for offset, row in self.rows("dead-letters").items()}

    def values(self) -> dict[int, Any]:
        return {offset: row["value"] for offset, row in self.rows("records").items()}

    def dead_letters_again(self) -> DataFrame:
        frame: DataFrame = self.decoder.decode(self._spark.read.parquet(str(self._folder / "output" / "dead-letters")))
        return frame

    def written(self) -> str:
        return "".join(file.read_text(errors="replace") for file in (self._folder / "checkpoint").rglob("*") if file.is_file())


@pytest.fixture
def make_run(spark: SparkSession, cluster: Cluster, schemas: Registry, tmp_path: Path) -> Iterator[Callable[..., Run]]:
    runs: list[Run] = []

    def make(topic: str, **reader: str) -> Run:
        options = {
            "kafka.bootstrap.servers": cluster.bootstrap_servers,
            "kafka.group.id": topic,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "registry.url": schemas.url,
            "registry.basic.auth.user.info": f"orders:{PASSWORD}",
            **{f"reader.{name}": value for name, value in {"subject": f"{topic}-value", **reader}.items()},
        }
        runs.append(Run(spark, tmp_path, options))
        return runs[-1]

    yield make
    for query in spark.streams.active:
        query.stop()
    for one in runs:
        one.decoder.client.close()


def avro(client: SchemaRegistryClient, topic: str, *fields: Mapping[str, Any], references: Any = ()) -> Encode:
    """Confluent's serializer for an order with these further fields, whose schema is registered."""
    schema = Schema(json.dumps({**ORDER, "fields": [*ORDER["fields"], *fields]}), "AVRO", list(references))
    client.register_schema(f"{topic}-value", schema)
    return functools.partial(encoded, AvroSerializer(client, schema), topic)


def framed(client: SchemaRegistryClient, subject: str, schema: Schema) -> bytes:
    """Register a schema, and return the bytes with which its records begin."""
    return b"\0" + client.register_schema(subject, schema).to_bytes(4, "big")


def encoded(serializer: Any, topic: str, value: Any) -> bytes:
    data = serializer(value, SerializationContext(topic, MessageField.VALUE))
    assert isinstance(data, bytes)
    return data


def proto(first: str = "", more: str = "") -> Schema:
    return Schema(PROTO % (first, more), "PROTOBUF")


def message(client: SchemaRegistryClient, schema: Schema, name: str) -> Any:
    """The class of a message, as a producer has it."""
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(program.compiled(client, schema)[0]).file:
        pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName(name))


@pytest.mark.parametrize(
    ("first", "name", "index"),
    [("", "shop.Order", b"\0"), ("message Note {}", "shop.Order", b"\2\2"), ("message Note {}", "shop.Order.Line", b"\4\2\0")],
)
def test_the_index_of_a_message_is_where_the_serializer_of_confluent_writes_it(
    first: str, name: str, index: bytes, client: SchemaRegistryClient, topic: MakeTopic, spark: SparkSession
) -> None:
    kind = message(client, proto(first), name)
    serializer = ProtobufSerializer(kind, client, {"use.deprecated.format": False})
    data = encoded(serializer, f"{topic()}-of-its-own", kind())
    # The serializer registers the descriptor, not the text.
    schema = client.get_schema(int.from_bytes(data[1:5], "big"))
    assert "syntax" not in str(schema.schema_str)
    prefixes = program.Protobuf(client, schema, name).columns(data[:5], schema)
    assert data == data[:5] + index
    assert data in prefixes
    assert len(prefixes) == (2 if index == b"\0" else 1), "the first message has a long form, too"


def test_protobuf_of_several_ids_and_what_cannot_be_read(
    make_run: Callable[..., Run], client: SchemaRegistryClient, schemas: Registry, topic: MakeTopic, produce: Produce
) -> None:
    """No bytes end the query: they go to the dead letters, and the good records between them are read."""
    if not any(spark_format_jars("spark-protobuf").iterdir()):
        pytest.skip("The Maven repository has no spark-protobuf")
    name = topic()
    old, new = proto(), proto("message Note { string text = 1; }", "string note = 4;")
    before, after = (framed(client, f"{name}-value", one) for one in (old, new))
    unusable = (
        Schema(json.dumps(ORDER), "AVRO"),
        Schema(JSON, "JSON"),
        proto("message Note { NoSuchMessage text = 1; }"),
        proto('import "no/such/file.proto";'),
    )
    order = before + b"\0"
    good = order + message(client, old, "shop.Order")(id=7).SerializeToString()
    full = message(client, new, "shop.Order")(id=1, note="two", lines=[{"item": "ink"}]).SerializeToString()
    readable = [
        after + b"\2\2" + full,
        None,
        before + b"\2\0",  # the first message in the long form, and nothing set in it
        # What is no error to Protobuf: the end between two fields, and another type in a field of a message inside.
        order,
        order + b"\x12\2\x08\1",
    ]
    unreadable = {
        "no index": before,
        "an index that does not end": before + b"\xff",
        "an index of no message": before + b"\2\x0e",
        "the index of another message": before + b"\4\0\0" + good[6:],
        "the index of a note": after + b"\0",
        "a negative index": before + b"\2\1",
        "a message that is cut": after + b"\2\2" + full[:-1],
        "no message at all": order + b"\xff" * 20,
        "a varint that does not end": order + b"\x08" + b"\x80" * 20,
        "a length beyond the end": order + b"\x12\x7f",
        "a negative length": order + b"\x12\xff\xff\xff\xff\x0f",
        "a tag of field 0": order + b"\0\0",
        "an end without a begin": order + b"\x2c",
        "groups without an end": order + b"\x2b" * 5000,
        "another type in a field": order + b"\x0a\1x",
        "a text that is no UTF-8": order + b"\x12\3\x0a\1\xff",
        "the bytes of Avro": order + b"\x0e\2\x06two",
        **{f"schema {at}": framed(client, f"{name}-{at}", one) + b"\0" + good[6:] for at, one in enumerate(unusable)},
    }
    ids = {
        "an unknown id": 4711,
        "id 0": 0,
        "the highest id": 2**31 - 1,
        "an id above all": 2**31,
        "the highest number": 2**32 - 1,
    }
    no_such_id = {of: b"\0" + one.to_bytes(4, "big") + good[5:] for of, one in ids.items()}
    bad = {**unreadable, **no_such_id}
    records = [*readable, *(value for one in bad.values() for value in (one, good))]
    produce(name, [(None, value) for value in records], 0)
    run = make_run(name, message="shop.Order")
    query = run.start(processingTime="100 milliseconds")
    run.until(query, len(records))
    reasons, values = run.reasons(), run.values()
    assert {of: reasons.get(len(readable) + 2 * at) for at, of in enumerate(bad)} == {
        **dict.fromkeys(unreadable, UNREADABLE),
        **dict.fromkeys(no_such_id, NO_SUCH_ID),
    }
    empty: dict[str, Any] = {"id": None, "lines": [], "at": None, "note": None}
    assert [values.pop(at) for at in range(len(readable))] == [
        {**empty, "id": 1, "note": "two", "lines": [{"item": "ink"}]},
        None,
        empty,
        empty,
        {**empty, "lines": [{"item": None}]},
    ]
    assert list(values.values()) == [{**empty, "id": 7}] * len(bad)
    assert max(schemas.fetched()) < 2**31
    query.stop()


@pytest.mark.long
def test_avro_of_several_ids_and_what_cannot_be_read(
    make_run: Callable[..., Run],
    client: SchemaRegistryClient,
    schemas: Registry,
    topic: MakeTopic,
    produce: Produce,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The last test of this file: at its end the registry is stopped, which ends the query."""
    caplog.set_level("INFO")
    name = topic()
    first, second = avro(client, name), avro(client, name, NOTE)
    other = AvroSerializer(client, json.dumps({"type": "record", "name": "Other", "fields": [{"name": "x", "type": "string"}]}))
    whole = second({"id": 6, "note": "cut"})
    values = [
        first({"id": 0}),
        second({"id": 1, "note": "two"}),
        None,
        b"\0\0\0\1",
        b'{"id": 4}',
        UNKNOWN + b"\2",
        whole[:-1],
        encoded(other, f"{name}-other", {"x": "seven"}),
        framed(client, f"{name}-json", Schema(JSON, "JSON")) + b"{}",
        b"",
    ]
    produce(name, [(b"key-%d" % number, value) for number, value in enumerate(values)], 0)
    run = make_run(name, version="2")
    query = run.start(processingTime="100 milliseconds")
    run.until(query, 10)
    assert run.values() == {0: {"id": 0, "note": None}, 1: {"id": 1, "note": "two"}, 2: None}
    assert run.reasons() == {3: NO_FORMAT, 4: NO_FORMAT, 5: NO_SUCH_ID, **dict.fromkeys((6, 7, 8), UNREADABLE), 9: NO_FORMAT}
    for offset, row in run.rows("dead-letters").items():
        assert (row["topic"], row["partition"], row["key"]) == (name, 0, b"key-%d" % offset)
        assert row["value"] == values[offset]
    assert run.rows("dead-letters")[5]["schema_id"] == 4711

    # A third schema, which refers to another one, arrives while the query runs. The columns stay those of version 2.
    client.register_schema("customer", Schema(json.dumps(CUSTOMER), "AVRO"))
    reference = SchemaReference("shop.Customer", "customer", 1)
    third = avro(client, name, NOTE, BUYER, references=[reference])
    produce(name, [(None, third({"id": 10, "note": "three", "buyer": {"city": "Ulm"}})), (None, first({"id": 11}))], 0)
    run.until(query, 12)
    assert query.isActive
    assert {offset: run.values()[offset] for offset in (10, 11)} == {
        10: {"id": 10, "note": "three"},
        11: {"id": 11, "note": None},
    }
    produce(name, [(None, TOO_HIGH)], 0)
    run.until(query, 13)
    assert run.reasons()[12] == NO_SUCH_ID
    assert max(schemas.fetched()) < 2**31, "there is no such id, and not every registry says so"

    used = (first({"id": 0}), whole, third({"id": 0, "note": None, "buyer": None}))
    assert {schemas.fetched()[int.from_bytes(data[1:5], "big")] for data in used} == {1}
    again = run.dead_letters_again()
    assert {row.offset: row.reason for row in again.collect()} == run.reasons()
    assert "Python" not in again._jdf.queryExecution().executedPlan().toString()

    reasons = run.reasons()
    schemas.stop()
    produce(name, [(None, b"\0" + (4712).to_bytes(4, "big") + b"\2")], 0)
    with pytest.raises(StreamingQueryException, match="ConnectError"):
        query.awaitTermination(180)
    assert run.reasons() == reasons, "a record is not given up"
    assert PASSWORD not in run.written() + caplog.text
