"""`groupkafka reset-offsets`: what its options mean. tests/kafka/cli/test_claims.py has resets against a real broker."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from spark_groupsource.brokers.group_view import PartitionView
from spark_groupsource.cli.main import main
from spark_groupsource.cli.reset_offsets import OffsetReset, target, topic_choice
from spark_groupsource.handoff.commit_record import Foreign
from spark_groupsource.partition import TopicPartition


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--topic", "t"], "The new offset is missing. Use one of --to-earliest"),
        (["--topic", "t", "--to-latest", "--to-offset", "3"], "--to-latest and --to-offset cannot be combined"),
        (["--topic", "t", "--to-datetime", "yesterday"], "Write it like 2026-11-21T16:00:00 (UTC)"),
        (["--topic", "t", "--to-datetime", "1969-12-31T00:00:00"], "before 1970"),
        (["--topic", "t:", "--to-latest"], "or a name with partitions, such as orders:0,1"),
        (["--topic", "t:0,x", "--to-latest"], "or a name with partitions, such as orders:0,1"),
        (["--topic", "a topic", "--to-latest"], "write a topic's name"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_says_what_is_expected_before_a_broker_is_asked(arguments: list[str], expected: str) -> None:
    to_nobody = ["reset-offsets", "--bootstrap-server", "127.0.0.1:1", "--group", "g"]
    refused = CliRunner().invoke(main, [*to_nobody, *arguments])
    assert refused.exit_code == 1
    assert expected in refused.output
    assert "Traceback" not in refused.output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--to-latest"], "Missing option '--topic'"),
        (["--topic", "t", "--to-offset", "-3"], "Invalid value for '--to-offset': -3 is not in the range"),
    ],
    ids=["no topic", "offset below 0"],
)
def test_a_missing_topic_and_a_negative_offset_are_wrong_arguments(arguments: list[str], expected: str) -> None:
    refused = CliRunner().invoke(main, ["reset-offsets", "--bootstrap-server", "127.0.0.1:1", "--group", "g", *arguments])
    assert refused.exit_code == 2
    assert expected in refused.output


def test_a_topic_may_be_given_with_partitions() -> None:
    assert topic_choice("orders") == ("orders", None)
    assert topic_choice("orders:0,12") == ("orders", frozenset({0, 12}))


def test_an_offset_is_the_target_itself_and_all_else_is_asked_for() -> None:
    assert target(to_earliest=False, to_latest=False, to_datetime=None, to_offset=7) == 7
    asked = target(to_earliest=False, to_latest=False, to_datetime="2026-11-21T16:00:00Z", to_offset=None)
    assert not isinstance(asked, int)


def test_the_difference_is_not_known_without_a_commit() -> None:
    commits = [Foreign(7), Foreign(4), Foreign(1), None]
    views = [PartitionView(TopicPartition("orders", 0), None, commit, 9) for commit in commits]
    assert [OffsetReset(view, 4).difference for view in views] == [-3, 0, 3, None]
