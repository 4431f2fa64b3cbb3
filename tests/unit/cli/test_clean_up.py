"""`groupkafka clean-up`: which groups are a query's, which query is named, and whether it may still run."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from click.testing import CliRunner

from spark_groupsource.brokers.group_view import GroupView, PartitionView
from spark_groupsource.cli.clean_up import is_of_sink, refuse_running
from spark_groupsource.cli.main import main
from spark_groupsource.handoff.commit_record import Foreign
from spark_groupsource.partition import TopicPartition
from spark_groupsource.sink.names import REACHES, Names
from spark_groupsource.sink.token import BatchToken, Mark, Opener, Token, Written

QUERY = "5e0bd5ce-5a4a-4d49-a9e1-f1d5a8f9a1d5"
ANOTHER = "5e0bd5ce-5a4a-4d49-a9e1-f1d5a8f9a1d6"
RUN = "0b5dc8e3-9e4f-4c51-a8f6-6b1d2c3e4f50"
AT = 1_763_744_390
TOKEN = Token(QUERY, 17, Written(5, 0xABC), RUN).metadata()
OF_DRIVER = BatchToken(QUERY, 17, 2, 5, RUN, frozenset({0, 1})).metadata()
OPEN = Mark(QUERY, RUN, Opener(AT, "host-7", 4711)).metadata()
CLOSED = Mark(QUERY, RUN, None).metadata()
NAMES = Names.of("groupkafka", QUERY, "invoices")
WHERE = ("clean-up", "--bootstrap-server", "127.0.0.1:1")


def group(name: str, *metadata: str) -> GroupView:
    kept = tuple(
        PartitionView(TopicPartition("invoices", number), None, Foreign(18), None, text) for number, text in enumerate(metadata)
    )
    return GroupView(name, "empty", "classic", "", "broker 1", (), kept)


@pytest.mark.parametrize(
    "seen",
    [
        group(NAMES.driver, OF_DRIVER),
        group(NAMES.task(0), TOKEN),
        group(NAMES.open(63), OPEN),
        group(NAMES.reach(REACHES[0]), CLOSED),
        group(Names.of("my-own", QUERY, None).task(3), TOKEN, TOKEN),
        group(NAMES.task(0), TOKEN.replace('"v":4', '"v":5')),
        group(NAMES.open(1)),
    ],
    ids=lambda view: view.group,
)
def test_a_group_is_the_querys_by_its_name_and_by_what_it_holds(seen: GroupView) -> None:
    assert is_of_sink(seen, QUERY)
    assert not is_of_sink(seen, ANOTHER)


@pytest.mark.parametrize(
    "seen",
    [
        group(NAMES.task(0), TOKEN, "another client's"),
        group(NAMES.task(0), ""),
        group(f"readers-of-{QUERY}-rows", TOKEN),
        group("invoices", TOKEN),
    ],
)
def test_anything_else_is_not(seen: GroupView) -> None:
    assert not is_of_sink(seen, QUERY)


@pytest.mark.parametrize("ahead", [timedelta(hours=-1), timedelta(days=9000)])
def test_an_old_mark_and_one_of_a_time_that_cannot_be_are_no_sign(ahead: timedelta) -> None:
    refuse_running(QUERY, [group(NAMES.open(1), OPEN)], datetime.fromtimestamp(AT, timezone.utc) - ahead)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "either --query or --checkpoint"),
        (("--query", QUERY, "--checkpoint", "x"), "either --query or --checkpoint"),
        (("--query", "invoices"), "--query 'invoices' is not a query id"),
        (("--checkpoint", "/no/such/folder"), "there is no metadata file that contains a query's id"),
    ],
)
def test_a_query_that_is_not_named_or_not_once_is_an_error(arguments: tuple[str, ...], said: str) -> None:
    refused = CliRunner().invoke(main, [*WHERE, *arguments])
    assert refused.exit_code == 1
    assert said in refused.output
