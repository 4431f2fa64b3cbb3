"""What is wrong with the user's own input is read in one screen: at the call, and at the end of what Spark prints of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

GOOD = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.group.id": "billing", "subscribe": "orders"}

SCREEN = 24
"""The lines of a terminal. A program's own call adds about eight to the error's."""

OF_THE_PROGRAM = 8

WRONG: dict[str, tuple[dict[str, str], str]] = {
    "misspelt": (
        {**GOOD, "startingOffset": "earliest"},
        "startingoffset: there is no option with this name. Did you mean startingOffsets",
    ),
    "for a batch": ({**GOOD, "endingOffsets": "latest"}, "endingOffsets is for spark.read only"),
    "of the sink": (
        {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.group.id": "billing", "topic": "orders"},
        "topic: there is no option with this name. Did you mean subscribe?",
    ),
}


def fits(text: str) -> bool:
    """Whether an error has neither a traceback of ours nor one of PySpark's runner, and room for the program's own call."""
    return "Traceback" not in text and "UnboundLocalError" not in text and len(text.splitlines()) + OF_THE_PROGRAM <= SCREEN


@pytest.mark.parametrize(("options", "said"), WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("schema", [None, "key STRING, value STRING"], ids=["own schema", "user's schema"])
def test_a_stream_says_what_is_wrong(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], said: str, schema: str | None
) -> None:
    reader = spark.readStream.format("groupkafka").options(**options)

    def run() -> None:
        frame = (reader if schema is None else reader.schema(schema)).load()
        frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start().processAllAvailable()

    with pytest.raises(PySparkException) as caught:
        run()
    assert f"OptionError: {said}" in str(caught.value)
    assert fits(str(caught.value)), str(caught.value)


def test_a_schema_is_named_as_it_was_written(spark: SparkSession, tmp_path: Path) -> None:
    schema = "value STRING, headers ARRAY<STRUCT<key: STRING, Value: STRING>>"
    frame = spark.readStream.format("groupkafka").options(**GOOD).schema(schema).load()
    with pytest.raises(PySparkException) as caught:
        frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start().processAllAvailable()
    text = " ".join(str(caught.value).split())
    assert "SchemaError: headers cannot be ARRAY<STRUCT<key: STRING, Value: STRING>>: write headers ARRAY<STRUCT<key: " in text
    assert fits(str(caught.value)), str(caught.value)


def test_a_sink_says_what_is_wrong(spark: SparkSession, tmp_path: Path) -> None:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "orders", "deliveryGuarante": "exactly-once"}
    said = "OptionError: deliveryguarante: there is no option with this name. Did you mean deliveryGuarantee?"
    rows = spark.range(1).selectExpr("CAST(id AS STRING) AS value")
    with pytest.raises(PySparkException) as caught:
        rows.write.format("groupkafka").options(**options).mode("append").save()
    assert said in str(caught.value)
    assert fits(str(caught.value)), str(caught.value)
    stream = spark.readStream.format("rate").load().selectExpr("CAST(value AS STRING) AS value")
    query = stream.writeStream.format("groupkafka").options(**options).option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(PySparkException) as caught:
        query.processAllAvailable()
    # A query that has begun is shown with its plan.
    assert said in str(caught.value)
    assert not re.search("Traceback|UnboundLocalError", str(caught.value))
