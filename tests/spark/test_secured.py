"""Queries and batch reads against a broker with TLS, SASL and ACLs, and what is seen of their secrets: nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_groupsource.native.libraries import why_unavailable
from tests.support.queries import Queries
from tests.support.secured import WRONG, Secured
from tests.support.spark_process import JVM_OPTIONS
from tests.support.waiting import until

MakeTopic = Callable[[str], str]


@pytest.fixture
def secured_queries(spark: SparkSession, tmp_path: Path, secured: Secured) -> Iterator[Queries]:
    """Queries whose checkpoints and sinks hold no secret in the end."""
    running = Queries(spark, tmp_path, "")
    yield running
    running.stop_all()
    texts = {file: file.read_bytes().decode("latin-1") for file in tmp_path.rglob("*") if file.is_file()}
    assert [file for file, text in texts.items() if shown_secrets(secured, text)] == []


def shown_secrets(secured: Secured, text: str) -> list[str]:
    return [secret for secret in secured.secrets() if secret in text]


@pytest.mark.parametrize(("login", "protocol"), [("SCRAM-SHA-512", "classic"), ("OIDC", "consumer")])
def test_a_query_and_a_batch_read_with_the_right_secret(
    spark: SparkSession, secured_queries: Queries, secured: Secured, secured_topic: MakeTopic, login: str, protocol: str
) -> None:
    topic = secured_topic("open-")
    options = {**secured.login(login), "kafka.group.id": topic, "subscribe": topic}
    query = secured_queries("a", topic, **options, **{"kafka.group.protocol": protocol})
    assert sorted(int(row.value) for row in query.run()) == list(range(10))
    batch = spark.read.format("groupkafka").options(**options).load()
    assert sorted(int(row.value) for row in batch.select("value").collect()) == list(range(10))
    explained = str(batch._jdf.queryExecution().toString())
    assert shown_secrets(secured, explained) == []


@pytest.mark.long
def test_the_tasks_of_a_sink_share_the_tokens_of_their_processes(
    spark: SparkSession, secured_queries: Queries, secured: Secured, secured_topic: MakeTopic, tmp_path: Path
) -> None:
    """An identity provider that is asked for dozens of tokens in each micro-batch answers with 429."""
    topic = secured_topic("shared-")
    secured.allow_writing_once("shared-")
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 80).option("numPartitions", 8).load()
    writing = {**secured.login("oauth_cb"), "topic": topic, "transactionalIdPrefix": topic}
    sink = rows.selectExpr("CAST(value AS STRING) AS value").writeStream.format("groupkafka").options(**writing)
    query = sink.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(processingTime="1 second").start()

    def newest() -> int:
        failure = query.exception()
        assert failure is None, failure
        progress = query.lastProgress
        return -1 if progress is None else int(progress["batchId"])

    try:
        until(lambda: newest() >= 2, "the first micro-batches")
        first, issued = newest(), len(secured.tokens.issued)
        until(lambda: newest() >= first + 2, "two more")
    finally:
        query.stop()
    assert len(secured.tokens.issued) - issued == 0, "two micro-batches of eight tasks"


def test_a_task_that_may_not_read_says_why(spark: SparkSession, secured: Secured, secured_topic: MakeTopic) -> None:
    topic = secured_topic("seen-")
    options = {**secured.login("SCRAM-SHA-512"), "kafka.group.id": "open-any", "subscribe": topic}
    frame = spark.read.format("groupkafka").options(**options).load()
    with pytest.raises(PySparkException) as caught:
        frame.collect()
    failure = str(caught.value)
    assert "NotAuthorized" in failure
    assert "READ ACL on the topic" in failure
    assert f"Reading {topic}-0 [0, 10)" in failure
    assert shown_secrets(secured, failure) == []


PROGRAM = """
import json, sys
from pyspark.sql import SparkSession

folder, cases = json.load(sys.stdin)
spark = (
    SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
)
for number, options in enumerate(cases):
    stream = spark.readStream.format("groupkafka").options(**options).load()
    stream.explain(True)
    query = (
        stream.writeStream.format("console").option("checkpointLocation", f"{folder}/{number}").trigger(availableNow=True).start()
    )
    try:
        query.awaitTermination()
        query.explain(True)
        print(query.lastProgress)
        print("succeeded")
    except Exception as error:
        print("failed", " ".join(str(error).split()))
"""

# Into a file: what goes to the terminal Spark cuts down to warnings, whatever the level.
VERBOSE = """
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {file}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %p %c: %m%n%ex
"""


def test_nothing_that_a_driver_writes_shows_a_secret(secured: Secured, secured_topic: MakeTopic, tmp_path: Path) -> None:
    topic = secured_topic("open-")
    verbose = tmp_path / "log4j2.properties"
    verbose.write_text(VERBOSE.format(file=tmp_path / "driver.log"))
    needed = {"kafka.group.id": topic, "subscribe": topic, "startingOffsets": "earliest"}
    logins = [("SCRAM-SHA-512", None), ("oauth_cb", None), ("PLAIN", WRONG), ("oauth_cb", WRONG)]
    job = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps([str(tmp_path), [{**secured.login(*login), **needed} for login in logins]]),
        env={
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "JDK_JAVA_OPTIONS": f"{JVM_OPTIONS} -Dlog4j2.configurationFile={verbose}",
        },
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    outcomes = [line for line in job.stdout.splitlines() if line.startswith(("succeeded", "failed"))]
    assert [outcome.partition(" ")[0] for outcome in outcomes] == ["succeeded", "succeeded", "failed", "failed"]
    assert "AuthenticationFailed" in outcomes[2]
    assert "kafka.sasl.password" in outcomes[2]
    assert "AuthenticationFailed: kafka.oauth_cb" in outcomes[3]
    assert shown_secrets(secured, job.stdout + job.stderr) == []
    if why_unavailable() is None:
        assert "native reader" not in job.stderr, "it reads with every login, and nothing warns of another reader"
    logs = [file.read_text() for file in tmp_path.rglob("*") if file.is_file() and not file.name.endswith(".crc")]
    assert any("INFO org.apache.spark" in log for log in logs)
    assert shown_secrets(secured, "".join(logs)) == []
