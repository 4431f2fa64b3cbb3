"""Read Avro or Protobuf in Confluent's wire format into typed columns, with the schemas of a registry.

spark-submit --packages org.apache.spark:spark-avro_2.13:VERSION registry.py OPTIONS CHECKPOINT OUTPUT

OPTIONS is a properties file with the options of the source and, in addition:

    registry.url              the registry's address; registry.NAME is any other setting of confluent-kafka's SchemaRegistryClient
    reader.subject            the subject of the reader's schema, which determines the columns
    reader.version            the version of that schema; by default the latest version when the query starts
    reader.message            Protobuf: the full name of the message; by default the first message of the schema

OUTPUT/records has the typed rows, and OUTPUT/dead-letters the records that cannot be read. If a micro-batch is run again, it
replaces the output of its earlier attempt, so each record is in one of the two folders, once.
"""

from __future__ import annotations

import base64
import json
import logging
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.confluent import meta_pb2
from confluent_kafka.schema_registry.confluent.type import decimal_pb2
from confluent_kafka.schema_registry.error import SchemaRegistryError
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.protobuf.functions import from_protobuf
from pyspark.sql.streaming.query import StreamingQuery

from spark_groupsource import await_termination, read_properties, register

log = logging.getLogger(__name__)

KAFKA = ["topic", "partition", "offset", "timestamp", "key"]
MAGIC = b"\0"
UNKNOWN_ID = "the registry does not know the schema id"
LOOK_UPS = 100
"""The maximum number of new ids that a micro-batch looks up, the most frequent first. Corrupt records may have arbitrary ids."""
HIGHEST_ID = 2**31 - 1
"""Ids are signed integers. Corrupt bytes may be larger, and not every registry answers "not found" for such a number."""
NOT_FOUND = {40401, 40402, 40403}
"""Codes for a missing id or a missing reference of its schema. Any other error ends the query: the records may be good."""


class Reader(Protocol):
    """A format. `decoded` is the column that `columns` has made."""

    was_read: Column
    value: Column

    def columns(self, prefix: bytes, schema: Schema) -> dict[bytes, Column]:
        """Return how records that begin with these bytes are decoded."""


class Avro:
    """Records are decoded with the schema that wrote them, and resolved to the reader's."""

    def __init__(self, client: SchemaRegistryClient, schema: Schema) -> None:
        self._client = client
        reader = json.loads(inlined(client, schema))
        if not isinstance(reader, dict) or reader.get("type") != "record":
            raise ValueError("The reader's Avro schema has to be a record.")
        # A field that no writer has: true by its default. Spark makes null of every field of a record that it cannot decode.
        reader["fields"].append({"name": "_read", "type": "boolean", "default": True})
        self._options = {"mode": "PERMISSIVE", "avroSchema": json.dumps(reader)}
        self.was_read = f.col("decoded._read").isNotNull()
        self.value = f.col("decoded").dropFields("_read")

    def columns(self, prefix: bytes, schema: Schema) -> dict[bytes, Column]:
        """Return one column, because an id has one schema."""
        return {prefix: from_avro(behind(prefix), inlined(self._client, schema), self._options)}


class Protobuf:
    """Decodes all records with the reader's schema, because Protobuf finds fields by their numbers."""

    def __init__(self, client: SchemaRegistryClient, schema: Schema, message: str | None) -> None:
        self._client = client
        self._descriptor, indexes = compiled(client, schema)
        self._message = message or next(iter(indexes))
        if self._message not in indexes:
            raise ValueError(f"The reader's Protobuf schema has no message {self._message}, but {', '.join(indexes)}.")
        self.was_read = f.col("decoded").isNotNull()
        self.value = f.col("decoded")

    def columns(self, prefix: bytes, schema: Schema) -> dict[bytes, Column]:
        """Return a column for each encoding of the index of the message."""
        _, indexes = compiled(self._client, schema)
        path = indexes.get(self._message, ())
        ways = [bytes(varints([len(path), *path]))] if path else []
        if path == (0,):
            ways.append(b"\0")  # the short form of the usual index
        return {prefix + way: self._column(prefix + way) for way in ways}

    def _column(self, prefix: bytes) -> Column:
        options = {"mode": "PERMISSIVE"}
        return from_protobuf(behind(prefix), self._message, options=options, binaryDescriptorSet=self._descriptor)


class Decoder:
    """Decodes a DataFrame with Kafka's columns, and remembers the schemas that it has looked up."""

    def __init__(self, client: SchemaRegistryClient, reader: Reader) -> None:
        self.client = client
        self._reader = reader
        self._known: set[int] = set()
        self._columns: dict[bytes, Column] = {}

    def decode(self, records: DataFrame) -> DataFrame:
        """Return Kafka's columns, `schema_id`, `raw` (the bytes), `value` (the struct) and `reason` (null if the value was read).

        A record without a value (a tombstone) counts as read: it has neither `value` nor `reason`.
        """
        framed = (f.length("value") >= 5) & f.startswith("value", f.lit(MAGIC))
        schema_id = f.when(framed, f.conv(f.hex(f.substring("value", 2, 4)), 16, 10).cast("long"))
        decoded = f.when(f.lit(False), None)
        for prefix, column in self._columns.items():
            decoded = decoded.when(f.startswith("value", f.lit(prefix)), column)
        reason = (
            f.when(f.col("raw").isNull() | self._reader.was_read, None)
            .when(f.col("schema_id").isNull(), "not in Confluent's wire format")
            .when(~f.col("schema_id").isin(sorted(self._known)), UNKNOWN_ID)
            .otherwise("cannot be read with its schema and the reader's")
        )
        # Two steps, because `decoded` is used more than once.
        first = records.select(*KAFKA, schema_id.alias("schema_id"), f.col("value").alias("raw"), decoded.alias("decoded"))
        return first.select(*KAFKA, "schema_id", "raw", self._reader.value.alias("value"), reason.alias("reason"))

    def learn(self, decoded: DataFrame) -> bool:
        """Fetch the schemas of unknown ids, and return whether at least one was found."""
        new = decoded.where((f.col("reason") == UNKNOWN_ID) & (f.col("schema_id") <= HIGHEST_ID))
        asked = new.groupBy("schema_id").count().orderBy(f.desc("count")).limit(LOOK_UPS)
        found = [self.look_up(row.schema_id) for row in asked.collect()]
        return any(found)

    def look_up(self, schema_id: int) -> bool:
        """Fetch a schema, and return whether the registry has it."""
        try:
            schema = self.client.get_schema(schema_id)
            self._known.add(schema_id)
            self._columns |= self._reader.columns(MAGIC + schema_id.to_bytes(4, "big"), schema)
        except SchemaRegistryError as error:
            if error.error_code not in NOT_FOUND:
                raise
        except (ValueError, DecodeError) as error:
            log.warning("schema %s cannot be used: %s", schema_id, error)
        return schema_id in self._known


def behind(prefix: bytes) -> Column:
    """Return the value without the prefix."""
    return f.substring("value", len(prefix) + 1, 2**31 - 1)


def varints(numbers: list[int]) -> Iterator[int]:
    """Encode numbers as the wire format encodes a message's index: zigzag, 7 bits in each byte, the lowest first."""
    for number in numbers:
        left = number * 2
        while left >= 128:
            yield left % 128 + 128
            left //= 128
        yield left


def references(client: SchemaRegistryClient, schema: Schema) -> dict[str, Schema]:
    """Return every schema that a schema refers to, directly or indirectly, by name."""
    found: dict[str, Schema] = {}
    left = list(schema.references or [])
    while left:
        reference = left.pop()
        name, subject, version = str(reference.name), str(reference.subject), reference.version
        if name not in found:
            found[name] = client.get_version(subject, version or "latest").schema
            left += found[name].references or []
    return found


def inlined(client: SchemaRegistryClient, schema: Schema) -> str:
    """Return an Avro schema without references: the first use of each name is replaced by its definition."""
    texts = {name: referred.schema_str or "" for name, referred in references(client, schema).items()}

    def replaced(node: Any, namespace: str) -> Any:
        if isinstance(node, str):
            name = node if node in texts else f"{namespace}.{node}"
            return replaced(json.loads(texts.pop(name)), "") if name in texts else node
        if isinstance(node, list):
            return [replaced(branch, namespace) for branch in node]
        if not isinstance(node, dict):
            return node
        if node.get("type") in ("record", "error", "enum", "fixed"):
            namespace = node.get("namespace", str(node.get("name")).rpartition(".")[0] or namespace)
            node = {**node, "namespace": namespace}
        inner = {key: replaced(node[key], namespace) for key in ("type", "items", "values", "fields") if key in node}
        return {**node, **inner}

    return json.dumps(replaced(json.loads(schema.schema_str or ""), ""))


def compiled(client: SchemaRegistryClient, schema: Schema) -> tuple[bytes, dict[str, tuple[int, ...]]]:
    """Return a Protobuf schema's descriptors, and the index of each of its messages by full name.

    A registry has either the text of a `.proto` file or the descriptor in base64, whichever the producer registered. Not every
    registry converts one into the other, so this function uses the compiler.

    Raises:
        ValueError: The compiler refuses the schema.
        DecodeError: The base64 is not a descriptor.
    """
    given = FileDescriptorSet()
    for module in (meta_pb2, decimal_pb2):  # Confluent's schemas import these without a reference
        given.file.append(FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        for file, imported in {**references(client, schema), "schema.proto": schema}.items():
            text = imported.schema_str or ""
            if re.fullmatch(r"[A-Za-z0-9+/]+=*", text):
                given.file.append(FileDescriptorProto.FromString(base64.b64decode(text)))
                given.file[-1].name = file
            elif (target := (folder / "text" / file).resolve()).is_relative_to(folder / "text"):
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text, encoding="utf-8")
        (folder / "given").write_bytes(given.SerializeToString())
        files = ["-Itext", "--descriptor_set_in=given", "--include_imports", "--descriptor_set_out=made", "schema.proto"]
        protoc = [sys.executable, "-m", "grpc_tools.protoc", *files]
        answer = subprocess.run(protoc, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
        if answer.returncode != 0:
            raise ValueError(answer.stderr.strip())
        descriptors = (folder / "made").read_bytes()
    last = FileDescriptorSet.FromString(descriptors).file[-1]  # a file comes after its imports
    return descriptors, dict(indexes(last.message_type, last.package, ()))


def indexes(messages: Sequence[Any], scope: str, path: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the full name and the index of each message and of its nested messages."""
    for number, message in enumerate(messages):
        name = f"{scope}.{message.name}".lstrip(".")
        yield name, (*path, number)
        yield from indexes(message.nested_type, name, (*path, number))


def connected(options: Mapping[str, str]) -> Decoder:
    """Return a decoder with the reader's schema that `reader.subject` and `reader.version` name."""
    settings = {name.removeprefix("registry."): value for name, value in options.items() if name.startswith("registry.")}
    client = SchemaRegistryClient({"timeout": 30, **settings})  # by default the client waits without limit
    version: int | Literal["latest"] = int(options["reader.version"]) if "reader.version" in options else "latest"
    found = client.get_version(options["reader.subject"], version)
    reader: Reader
    if found.schema.schema_type == "PROTOBUF":
        reader = Protobuf(client, found.schema, options.get("reader.message"))
    else:
        reader = Avro(client, found.schema)
    decoder = Decoder(client, reader)
    if found.schema_id is not None:
        decoder.look_up(found.schema_id)
    return decoder


def start(
    spark: SparkSession, decoder: Decoder, options: Mapping[str, str], checkpoint: str, output: str, **trigger: Any
) -> StreamingQuery:
    """Start the query, or restart it on its checkpoint."""

    def write(records: DataFrame, number: int) -> None:
        decoded = decoder.decode(records).persist()
        if decoder.learn(decoded):  # reads the micro-batch again, at most once for each new schema
            decoded.unpersist()
            decoded = decoder.decode(records).persist()
        typed = decoded.where("reason IS NULL").select(*KAFKA, "schema_id", "value")
        typed.write.mode("overwrite").parquet(f"{output}/records/batch={number}")
        dead = decoded.where("reason IS NOT NULL").select(*KAFKA, "schema_id", f.col("raw").alias("value"), "reason")
        dead.coalesce(1).write.mode("overwrite").parquet(f"{output}/dead-letters/batch={number}")
        decoded.unpersist()

    of_source = {name: value for name, value in options.items() if not name.startswith(("registry.", "reader."))}
    records = spark.readStream.format("groupkafka").options(**of_source).load()
    writer = records.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    return writer.queryName("registry").trigger(**trigger).start()


def main() -> None:
    """Run until SIGTERM or Ctrl-C, or until the query fails."""
    file, checkpoint, output = sys.argv[1:]
    options = read_properties(file)
    spark = SparkSession.builder.appName("registry").getOrCreate()
    register(spark)  # confirms finished micro-batches immediately; Databricks may need it to find the source
    await_termination(start(spark, connected(options), options, checkpoint, output, processingTime="10 seconds"))


if __name__ == "__main__":
    main()
