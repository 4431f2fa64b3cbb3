"""`--json`: its shapes are those of docs/command-line.md."""

from __future__ import annotations

import json
import re
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, get_args

import pytest

from spark_groupsource.brokers.group_view import GroupMember, GroupView, PartitionView
from spark_groupsource.cli import claims, describe, group_changes, leave, migrate, reset_offsets, top, transactions
from spark_groupsource.cli.check import command as check
from spark_groupsource.cli.check.findings import ok
from spark_groupsource.cli.group_changes import GroupEvent, Rates
from spark_groupsource.cli.migrate import Migration
from spark_groupsource.cli.open_transactions import Candidate, Openers, Visibility
from spark_groupsource.cli.render import lag_of, print_json
from spark_groupsource.cli.reset_offsets import OffsetReset
from spark_groupsource.cli.spark_checkpoint import LastBatches
from spark_groupsource.cli.top import Snapshot
from spark_groupsource.handoff.commit_record import CommitRecord, OpenRange, OtherFormat, OwedRange, mark_of
from spark_groupsource.partition import TopicPartition
from spark_groupsource.sink.names import Names
from spark_groupsource.sink.token import Opener

PAGE = (Path(__file__).parents[3] / "docs" / "command-line.md").read_text(encoding="utf-8")
EXAMPLES = {
    heading: [json.loads(block) for block in re.findall(r"```json\n(.*?)```", section, re.DOTALL)]
    for heading, _, section in (part.partition("\n") for part in PAGE.split("\n## ")[1:])
}

AT = datetime(2026, 11, 21, 17, 0, tzinfo=timezone.utc)
ZERO = TopicPartition("orders\x1b", 0)
ORDERS = tuple(TopicPartition("orders", number) for number in range(3))
RECORD = CommitRecord(
    stream="a",
    logged=7,
    done=6,
    next=9,
    open=(OpenRange(6, 9),),
    owed=(OwedRange("b", 3, 2, 4),),
    claimed_at=1_763_744_390,
    member=mark_of("a-1"),
)
MEMBER = GroupMember("a-1", "a", None, "host", frozenset({ZERO}), target=frozenset())
VIEW = GroupView(
    "billing",
    "stable",
    "classic",
    "range",
    "broker 1",
    (MEMBER,),
    (
        PartitionView(ZERO, MEMBER, RECORD, 10),
        PartitionView(TopicPartition("orders\x1b", 1), None, None, None),
        PartitionView(TopicPartition("orders\x1b", 2), None, OtherFormat(4, 5), 10),
    ),
)
MIGRATION = Migration(
    group="billing",
    checkpoint="/data/checkpoints/billing",
    query="0b9f",
    last=LastBatches(12, 12),
    batch=12,
    committed_at=AT,
    source="0",
    resets=(OffsetReset(PartitionView(ZERO, None, None, None), 120),),
    added=frozenset(),
    expired={},
    deleted=(TopicPartition("invoices", 0),),
    stateful=False,
)
OPENER = Candidate(Names("groupkafka", "5e0bd5ce"), 3, "", Opener(1_763_744_390, "host", 7), "invoices", None)

SHOWN = {
    "describe": [describe.json_group(VIEW)],
    "claims": [claims.json_shape(VIEW)],
    "reset-offsets": [reset_offsets.json_shape("billing", [OffsetReset(VIEW.partitions[0], 0)], executed=False)],
    "migrate": [migrate.json_shape(MIGRATION, executed=False)],
    "leave": [
        leave.json_shape("billing", {**dict.fromkeys(ORDERS, 120), ORDERS[2]: -2}),
    ],
    "check": [check.json_shape("file", [ok("brokers", "yes")])],
    "transactions": [transactions.json_shape("invoices", [Visibility(ZERO, 2, 7)], Openers((OPENER,), ()))],
    "top": [
        json.loads(top.json_line(Snapshot("billing", AT, VIEW, Rates({ZERO: 1.5}, {ZERO: 0.0}), (GroupEvent("joined", "a"),)))),
        json.loads(top.json_line(Snapshot("billing", AT, trouble="why"))),
    ],
}


def shape(value: Any) -> Any:
    """The fields, in their order, of an object and of the objects in it; of a list those of its first item, if it has one."""
    if isinstance(value, dict):
        return [(name, shape(inner)) for name, inner in value.items() if inner != []]
    return shape(value[0]) if isinstance(value, list) else None


@pytest.mark.parametrize("command", SHOWN)
def test_the_fields_are_those_of_the_page(command: str) -> None:
    assert [list(one) for one in SHOWN[command]] == [list(one) for one in EXAMPLES[command]]
    if command != "top":
        assert [shape(one) for one in SHOWN[command]] == [shape(one) for one in EXAMPLES[command]]
    else:
        assert list(SHOWN["top"][0]["partitions"][0]) == list(EXAMPLES["top"][0]["partitions"][0])


def test_claims_are_sorted_and_times_are_utc_and_what_is_not_known_is_null() -> None:
    shown = describe.json_group(VIEW)
    first, second, third = shown["partitions"]
    assert [(one["kind"], one["start"], one["since"]) for one in first["claims"]] == [
        ("held", 2, None),
        ("in flight", 6, "2025-11-21T16:59:50Z"),
    ]
    assert [second[name] for name in ("committed", "end", "lag", "member_id")] == [None] * 4
    assert (second["in_flight"], second["held"]) == (0, 0)
    assert (shown["in_flight"], shown["held"], first["in_flight"], first["held"]) == (3, 2, 3, 2)
    assert first["lowest_claim"] == {**first["claims"][0], "finished_lag": 2}
    assert (shown["lag"], shown["lag_unknown"], shown["finished_lag"]) == (None, 1, 2)
    assert lag_of(VIEW) == "lag at least 14 (not known in 1 partition), of which finished 2"
    assert (second["lowest_claim"], third["lowest_claim"]) == (None, None)
    assert [one["finished_lag"] for one in claims.json_shape(VIEW)["lowest_claims"]] == [2]
    assert (third["stream"], third["other_format"], third["held"], third["in_flight"], third["lag"]) == (None, 5, None, None, 6)
    assert claims.json_shape(VIEW)["other_formats"] == [{"topic": "orders\x1b", "partition": 2, "format": 5}]


def test_what_no_leader_has_said_and_what_no_mark_says_is_null() -> None:
    seen = [Visibility(ZERO, 2, 7), Visibility(TopicPartition("orders", 1), None, 7)]
    shown = transactions.json_shape("orders", seen, Openers((OPENER,), ()))
    assert (shown["not_visible"], [one["not_visible"] for one in shown["partitions"]]) == (None, [5, None])
    assert (shown["candidates"][0]["run"], shown["candidates"][0]["batch"]) == (None, None)
    assert transactions.json_shape("orders", seen[:1], Openers((), ()))["not_visible"] == 5


def test_no_character_that_could_steer_a_terminal_is_raw(capsys: pytest.CaptureFixture[str]) -> None:
    print_json(SHOWN["describe"][0])
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert json.loads(text) == SHOWN["describe"][0]


def test_the_page_names_every_event() -> None:
    assert [kind for kind in get_args(group_changes.Kind) if f"`{kind}`" not in PAGE] == []
