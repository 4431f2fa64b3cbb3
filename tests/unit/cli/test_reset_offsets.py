"""`groupkafka reset-offsets`: what its options mean. tests/kafka/cli/test_claims.py has resets against a real broker."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from spark_groupsource.cli.main import main
from spark_groupsource.cli.reset_offsets import OffsetReset, Target, target, topic_choice
from spark_groupsource.partition import TopicPartition


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--to-latest"], "--topic is missing"),
        (["--topic", "t"], "The new offset is missing. Use one of --to-earliest"),
        (["--topic", "t", "--to-latest", "--to-offset", "3"], "--to-latest and --to-offset cannot be combined"),
        (["--topic", "t", "--to-offset", "-3"], "an offset is 0 or higher"),
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


def test_a_topic_may_be_given_with_partitions() -> None:
    assert topic_choice("orders") == ("orders", None)
    assert topic_choice("orders:0,12") == ("orders", frozenset({0, 12}))


def test_an_offset_is_the_target_itself_and_all_else_is_asked_for() -> None:
    assert target(to_earliest=False, to_latest=False, to_datetime=None, to_offset=7) == Target(offset=7)
    asked = target(to_earliest=False, to_latest=False, to_datetime="2026-11-21T16:00:00Z", to_offset=None)
    assert (asked.offset, asked.spec is None) == (None, False)


def test_the_difference_is_not_known_without_a_commit() -> None:
    partition = TopicPartition("orders", 0)
    assert [OffsetReset(partition, current, 4, ()).difference for current in (7, 4, 1, None)] == [-3, 0, 3, None]
