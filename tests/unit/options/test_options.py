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


def test_three_options_are_enough_and_the_rest_is_as_in_sparks_source() -> None:
    options = Options.parse(BASE)
    assert options.subscribe == ("orders",)
    assert options.subscribe_pattern is None
    assert options.stream_start == "latest"
    assert options.fail_on_data_loss is True
    assert options.max_offsets_per_trigger is None
    assert options.include_headers is False
    assert options.poll_timeout_ms == 120_000
    assert (options.fetch_offset_num_retries, options.fetch_offset_retry_interval_ms) == (3, 10)
    assert (options.group_id, options.group_instance_id, options.group_protocol) == ("billing", None, "classic")
    assert options.assignment_strategy == "cooperative-sticky"
    assert (options.handoff, options.drain_timeout_ms, options.assignment_timeout_ms) == ("drain", 30_000, 120_000)
    assert options.read_committed is False
    assert options.max_poll_interval_ms == 300_000


def test_every_option_may_be_set_in_any_case() -> None:
    written = {
        "Subscribe": " orders, payments,orders ,",
        "STARTINGOFFSETS": " Earliest ",
        "failondataloss": "FALSE",
        "maxoffsetspertrigger": str(2**63 - 1),
        "IncludeHeaders": "True",
        "kafkaconsumer.POLLtimeoutms": "500",
        "fetchoffset.numretries": "0",
        "fetchoffset.retryintervalms": "0",
        "Kafka.Bootstrap.Servers": "[::1]:9092, broker-2:9093",
        "KAFKA.GROUP.ID": "Billing",
        "kafka.Group.Instance.Id": "driver-1",
        "kafka.isolation.level": "read_committed",
        "kafka.max.poll.interval.ms": "60000",
        "kafka.partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor",
        "HANDOFF": "Immediate",
        "handoff.draintimeout": "1m",
        "assignmenttimeout": "90s",
    }
    options = Options.parse(written)
    assert options.subscribe == ("orders", "payments")
    assert options.stream_start == "earliest"
    assert options.fail_on_data_loss is False
    assert options.max_offsets_per_trigger == 2**63 - 1
    assert options.include_headers is True
    assert options.poll_timeout_ms == 500
    assert (options.fetch_offset_num_retries, options.fetch_offset_retry_interval_ms) == (0, 0)
    assert (options.group_id, options.group_instance_id) == ("Billing", "driver-1")
    assert options.assignment_strategy == "range"
    assert (options.handoff, options.drain_timeout_ms, options.assignment_timeout_ms) == ("immediate", 60_000, 90_000)
    assert options.read_committed is True
    assert options.max_poll_interval_ms == 60_000


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("30s", 30_000),
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


@pytest.mark.parametrize(
    ("text", "offsets"),
    [
        ("earliest", "earliest"),
        ("LATEST", "latest"),
        (
            '{"orders":{"0":23,"1":-1,"2":-2}}',
            {TopicPartition("orders", 0): 23, TopicPartition("orders", 1): -1, TopicPartition("orders", 2): -2},
        ),
        ('{"orders":{"0":"23"}}', {TopicPartition("orders", 0): 23}),
    ],
)
def test_starting_offsets(text: str, offsets: object) -> None:
    assert parse(startingOffsets=text).starting_offsets == offsets


ORDERS_0 = TopicPartition("orders", 0)


@pytest.mark.parametrize(
    ("given", "stream", "batch"),
    [
        ({}, "latest", "earliest"),
        ({"startingOffsets": "earliest"}, "earliest", "earliest"),
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
        ({}, OutstandingClaims(stop_after_s=120)),
        ({"outstandingClaims.grace": "5s"}, OutstandingClaims(stop_after_s=5)),
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
