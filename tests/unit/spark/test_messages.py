"""What a Python process of Spark shows: lines on stderr, the query's id, and errors of the user's input without a traceback.

Each case of a line has a process of its own: pytest has handlers already.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import TaskContext

from spark_groupsource.errors import BrokerUnavailable, OptionError, SchemaError
from spark_groupsource.options.model import Options
from spark_groupsource.spark.messages import HIDE_TRACEBACK, query_of_checkpoint, query_of_task, shown_alone, warn_of_blanks
from spark_groupsource.spark.readers import GroupKafkaStreamReader
from spark_groupsource.subject import current_subject
from tests.support.options import BASE

WRITE = """
import logging, sys
{before}
from spark_groupsource.spark.messages import log_to_stderr
for _ in range(2):
    log_to_stderr()
log = logging.getLogger("spark_groupsource.query.cycle")
log.debug("a detail")
log.info("joined")
log.warning("lost")
"""

WARNING = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} WARNING spark_groupsource\.query\.cycle: lost\n"


def written(level: str | None, before: str = "") -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "GROUPKAFKA_LOG_LEVEL"}
    if level is not None:
        environment["GROUPKAFKA_LOG_LEVEL"] = level
    code = WRITE.format(before=before)
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)


def test_warnings_have_time_level_and_logger_and_stand_there_once() -> None:
    assert re.fullmatch(WARNING, written(None).stderr)


def test_the_environment_variable_sets_the_level() -> None:
    said = written("info").stderr
    assert re.fullmatch(WARNING.replace("WARNING", "INFO").replace("lost", "joined") + WARNING, said)
    assert written("ERROR").stderr == ""


OF_TWO_QUERIES = """
import logging, time
from spark_groupsource.brokers.client import librdkafka_log
from spark_groupsource.spark.messages import log_to_stderr
from spark_groupsource.subject import work_for

log = logging.getLogger("spark_groupsource.fetch.reading")
for query in ("q-1", "q-2"):  # as a worker, which has a task of one query and then of another
    work_for(group="orders", query=query)
    log_to_stderr()
    for _ in range(3):
        log.warning("the leader rejected the read")
    librdkafka_log.error("1/1 brokers are down")
work_for(query="q-3", topic="a\\nb", group=None)
log.warning("written")
work_for()
log.warning("nobody's")
"""


def test_a_line_names_the_group_and_the_query() -> None:
    done = subprocess.run([sys.executable, "-c", OF_TWO_QUERIES], capture_output=True, text=True, check=True)
    assert sorted(line.partition(": ")[2] for line in done.stderr.splitlines()) == [
        "group orders, query q-1: 1/1 brokers are down",
        "group orders, query q-1: the leader rejected the read",
        "group orders, query q-2: 1/1 brokers are down",
        "group orders, query q-2: the leader rejected the read",
        "nobody's",
        "query q-3, topic 'a\\nb': written",
    ]


def test_a_handler_that_is_there_is_left_alone() -> None:
    done = written("INFO", "logging.basicConfig(stream=sys.stdout, format='mine: %(message)s')")
    assert (done.stdout, done.stderr) == ("mine: joined\nmine: lost\n", "")


def test_a_handler_that_is_there_may_name_whom_a_line_is_written_for() -> None:
    lines = """
logging.basicConfig(stream=sys.stdout, format='%(groupkafka_subject)s%(message)s')
from spark_groupsource.subject import work_for
work_for(group="orders", query="q-1")
from spark_groupsource.spark.messages import log_to_stderr
log_to_stderr()
logging.getLogger("another").warning("of another package")
"""
    done = written("WARNING", lines)
    assert (done.stdout, done.stderr) == ("of another package\ngroup orders, query q-1: lost\n", "")


def test_another_level_is_an_error_that_names_the_variable() -> None:
    said = written("VERBOSE").stderr
    assert "OptionError: The environment variable GROUPKAFKA_LOG_LEVEL is 'VERBOSE'" in said
    assert "DEBUG, INFO, WARNING, ERROR, CRITICAL" in said


@pytest.mark.parametrize("kind", [OptionError, SchemaError])
def test_a_mistake_of_the_user_is_shown_alone(kind: type[Exception]) -> None:
    with pytest.raises(kind, match="wrong"), shown_alone():
        raise kind("wrong")
    assert os.environ[HIDE_TRACEBACK]


@pytest.mark.parametrize("kind", [BrokerUnavailable, ValueError])
def test_other_errors_keep_their_traceback(kind: type[Exception]) -> None:
    with pytest.raises(kind, match="wrong"), shown_alone():
        raise kind("wrong")
    assert HIDE_TRACEBACK not in os.environ


def test_blanks_around_the_name_are_worth_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    warn_of_blanks("billing of orders")
    assert not caplog.messages
    warn_of_blanks(" billing")
    (said,) = caplog.messages
    assert said.startswith("kafka.group.id = ' billing' has blanks around the name")
    assert said.endswith("a different group from 'billing'")


QUERY = "5e0bd5ce-5a4a-4d49-a9e1-f1d5a8f9a1d5"


@pytest.fixture
def context() -> Iterator[TaskContext]:
    made = TaskContext._getOrCreate()
    made._localProperties = {}
    yield made
    TaskContext._setTaskContext(None)


def test_the_query_of_a_checkpoint_is_known_if_it_can_be_read(tmp_path: Path) -> None:
    assert query_of_checkpoint(None) is None
    assert query_of_checkpoint(str(tmp_path)) is None
    assert query_of_checkpoint("nowhere://host/path") is None
    (tmp_path / "metadata").write_text(json.dumps({"id": QUERY}))
    assert query_of_checkpoint(f"file://{tmp_path}") == QUERY


def test_a_runner_names_its_stream_and_the_query_once_it_has_read_its_id(tmp_path: Path) -> None:
    reader = GroupKafkaStreamReader(Options.parse({**BASE, "checkpointLocation": str(tmp_path)}, "stream"))
    said = []
    for step in (
        lambda: reader._speak_for(None),
        lambda: reader._speak_for("5e7"),
        reader._look_up_query,
        lambda: (tmp_path / "metadata").write_text(json.dumps({"id": QUERY})),
        reader._look_up_query,
        lambda: reader._speak_for("5e7"),
    ):
        step()
        said.append(current_subject())
    stream, query = "group billing, stream 5e7: ", f"group billing, query {QUERY}, stream 5e7: "
    assert said == ["group billing: ", stream, stream, stream, query, query]


def test_a_task_knows_the_query_if_spark_says_which_it_is(context: TaskContext) -> None:
    assert query_of_task() is None, "a batch read"
    context._localProperties = {"sql.streaming.queryId": QUERY}
    assert query_of_task() == QUERY
