"""docs/broker-codes.md: each error of the brokers is in its tables, with the times of the options."""

from __future__ import annotations

from spark_groupsource import errors
from spark_groupsource.brokers.broker_errors import COMMIT_ERRORS, MEMBER_ERRORS, REQUEST_ERRORS
from spark_groupsource.options.client_settings import PRODUCER
from spark_groupsource.options.model import Options
from spark_groupsource.sink.failures import TASK_ERRORS
from tests.support.options import BASE
from tools.handling import OF_QUERIES, OF_TASKS, cases_of_queries, cases_of_tasks
from tools.pages import BROKER_CODES, with_trouble


def test_the_page_shows_what_becomes_of_each_error() -> None:
    page = BROKER_CODES.read_text(encoding="utf-8")
    assert with_trouble(page) == page, "run `make pages`"
    assert OF_QUERIES.keys() >= {error for table in (COMMIT_ERRORS, REQUEST_ERRORS, MEMBER_ERRORS) for error in table.values()}
    for error, ways in OF_QUERIES.items():
        assert error.passing <= any(done.option == "assignmentTimeout" for done in ways), error
    # The sink is no member of a group.
    assert OF_TASKS.keys() >= set(TASK_ERRORS.values()) - {errors.MemberFenced}


def test_the_times_of_the_page_are_the_defaults_of_the_options() -> None:
    options = Options.parse(BASE)
    defaults_ms = {
        "assignmentTimeout": options.assignment_timeout_ms,
        "kafkaConsumer.pollTimeoutMs": options.poll_timeout_ms,
        "kafka.delivery.timeout.ms": int(PRODUCER["message.timeout.ms"]),
    }
    ways = [case.done for case in (*cases_of_queries(), *cases_of_tasks()) if case.done.for_how_long.startswith("2 min")]
    named = {done.option for done in ways if done.option is not None}
    assert named == defaults_ms.keys()
    assert {defaults_ms[option] for option in named} == {120_000}
