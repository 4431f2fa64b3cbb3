"""Options: what may be written, and what it means."""

from __future__ import annotations

import copy
import pickle

import pytest

from spark_groupsource.handoff.rules import HOLD, OutstandingClaims
from spark_groupsource.options.model import Options
from spark_groupsource.options.start_and_end import ByOffset, ByTime
from spark_groupsource.partition import TopicPartition
from tests.support.options import BASE, parse

ASSIGNORS = "org.apache.kafka.clients.consumer."


# The attribute: its default, its option in some case, a value as it may be written, and what that means.
MEANINGS: dict[str, tuple[object, str, str, object]] = {
    "subscribe": (("orders",), "Subscribe", " orders, payments,orders ,", ("orders", "payments")),
    "stream_start": ("latest", "STARTINGOFFSETS", " Earliest ", "earliest"),
    "fail_on_data_loss": (True, "failondataloss", "FALSE", False),
    "max_offsets_per_trigger": (None, "maxoffsetspertrigger", str(2**63 - 1), 2**63 - 1),
    "include_headers": (False, "IncludeHeaders", "True", True),
    "poll_timeout_ms": (120_000, "kafkaconsumer.POLLtimeoutms", "500", 500),
    "fetch_offset_num_retries": (3, "fetchoffset.numretries", "0", 0),
    "fetch_offset_retry_interval_ms": (10, "fetchoffset.retryintervalms", "0", 0),
    "group_id": ("billing", "KAFKA.GROUP.ID", "Billing", "Billing"),
    "group_instance_id": (None, "kafka.Group.Instance.Id", "driver-1", "driver-1"),
    "read_committed": (False, "kafka.isolation.level", "read_committed", True),
    "max_poll_interval_ms": (300_000, "kafka.max.poll.interval.ms", "60000", 60_000),
    "assignment_strategy": ("cooperative-sticky", "kafka.partition.assignment.strategy", f"{ASSIGNORS}RangeAssignor", "range"),
    "handoff": ("drain", "HANDOFF", "Immediate", "immediate"),
    "drain_timeout_ms": (30_000, "handoff.draintimeout", "1m", 60_000),
    "assignment_timeout_ms": (120_000, "assignmenttimeout", "90s", 90_000),
}


def test_three_options_are_enough_and_the_rest_is_as_in_sparks_source() -> None:
    options = Options.parse(BASE)
    assert {name: getattr(options, name) for name in MEANINGS} == {name: default for name, (default, *_) in MEANINGS.items()}
    assert (options.subscribe_pattern, options.group_protocol) == (None, "classic")


def test_every_option_may_be_set_in_any_case() -> None:
    written = {option: text for _, option, text, _ in MEANINGS.values()}
    options = Options.parse({"Kafka.Bootstrap.Servers": "[::1]:9092, broker-2:9093", **written})
    assert {name: getattr(options, name) for name in MEANINGS} == {name: meant for name, (*_, meant) in MEANINGS.items()}


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("500ms", 500),
        ("250", 250),
        (" 2M ", 120_000),
        ("2min", 120_000),
        ("1h", 3_600_000),
        ("1d", 86_400_000),
        ("2000us", 2),
    ],
)
def test_durations_are_written_as_in_spark(text: str, milliseconds: int) -> None:
    assert parse(maxTriggerDelay=text).max_trigger_delay_ms == milliseconds


ORDERS_0 = TopicPartition("orders", 0)


def test_an_offset_may_be_the_latest_or_the_earliest_or_a_number_as_text() -> None:
    offsets = parse(startingOffsets='{"orders":{"0":"23","1":-1,"2":-2}}').starting_offsets
    assert offsets == {ORDERS_0: 23, TopicPartition("orders", 1): -1, TopicPartition("orders", 2): -2}


@pytest.mark.parametrize(
    ("given", "stream", "batch"),
    [
        ({}, "latest", "earliest"),
        ({"startingOffsets": "earliest"}, "earliest", "earliest"),
        ({"startingOffsets": "LATEST"}, "latest", "latest"),
        ({"startingOffsets": "committed"}, "latest", "committed"),
        ({"startingOffsets": '{"orders":{"0":1}}'}, *[ByOffset("startingOffsets", {ORDERS_0: 1})] * 2),
        (
            {"startingOffsetsByTimestamp": '{"orders":{"0":7}}', "startingOffsets": "committed"},
            *[ByTime("startingOffsetsByTimestamp", {ORDERS_0: 7}, or_latest=False)] * 2,
        ),
        (
            {
                "startingTimestamp": "9",
                "startingOffsetsByTimestamp": '{"orders":{"0":7}}',
                "startingOffsetsByTimestampStrategy": "Latest",
            },
            *[ByTime("startingTimestamp", 9, or_latest=True)] * 2,
        ),
    ],
    ids=str,
)
def test_a_time_for_all_goes_before_times_and_times_before_offsets(given: dict[str, str], stream: object, batch: object) -> None:
    options = Options.parse({**BASE, **given})
    assert options.stream_start == stream
    assert options.batch_start == batch


@pytest.mark.parametrize(
    ("given", "end"),
    [
        ({}, "latest"),
        ({"endingOffsets": '{"orders":{"0":1}}'}, ByOffset("endingOffsets", {ORDERS_0: 1})),
        (
            {"endingOffsets": "latest", "endingOffsetsByTimestamp": '{"orders":{"0":7}}'},
            ByTime("endingOffsetsByTimestamp", {ORDERS_0: 7}, or_latest=True),
        ),
        (
            {"endingTimestamp": "9", "endingOffsetsByTimestamp": '{"orders":{"0":7}}'},
            ByTime("endingTimestamp", 9, or_latest=True),
        ),
    ],
    ids=str,
)
def test_the_same_holds_for_the_end_of_a_batch_read(given: dict[str, str], end: object) -> None:
    assert Options.parse({**BASE, **given}).batch_end == end


def test_a_prefix_of_group_ids_has_no_effect_as_in_spark() -> None:
    assert parse(groupIdPrefix="jobs") == parse()


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ({}, OutstandingClaims(chosen=False)),
        ({"outstandingClaims.grace": "5s"}, OutstandingClaims(stop_after_s=5, chosen=False)),
        ({"outstandingClaims": "hold"}, HOLD),
        ({"outstandingclaims": " Reread "}, OutstandingClaims(reread_after_s=0)),
        ({"outstandingClaims": "reread-after 10m"}, OutstandingClaims(reread_after_s=600)),
    ],
    ids=str,
)
def test_claims_of_others_are_held_unless_the_user_says_otherwise(given: dict[str, str], chosen: OutstandingClaims) -> None:
    assert Options.parse({**BASE, **given}).outstanding() == chosen


def test_options_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        parse().include_headers = True  # type: ignore[misc]
    with pytest.raises(TypeError):
        parse().kafka["group.id"] = "other"  # type: ignore[index]


def test_options_survive_a_pickle_and_a_copy() -> None:
    options = parse(startingOffsets='{"orders":{"0":1}}')
    assert pickle.loads(pickle.dumps(options)) == options  # noqa: S301
    assert copy.deepcopy(options) == options
