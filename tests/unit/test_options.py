"""Options: what may be written, what it means, and what the user is told when it is wrong."""

from __future__ import annotations

import copy
import difflib
import json
import pickle
import re
import subprocess
import sys
import warnings
from collections.abc import Mapping

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from hypothesis import given
from hypothesis import strategies as st

from spark_groupsource.errors import OptionError
from spark_groupsource.handoff.owed_ranges import HOLD, OutstandingClaims
from spark_groupsource.options.model import REFUSED, Options
from spark_groupsource.options.start_and_end import ByOffset, ByTime
from spark_groupsource.options.topic_pattern import common_pattern
from spark_groupsource.partition import TopicPartition

NEEDED = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.group.id": "billing"}
BASE = {**NEEDED, "subscribe": "orders"}
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
WITH_PASSWORD = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.jaas.config": f'{PLAIN} required username="alice" password="hunter2";',
    "kafka.ssl.key.password": "hunter2",
}


def parse(**options: str) -> Options:
    return Options.parse({**BASE, **options})


def refusal(options: Mapping[str, str]) -> str:
    with pytest.raises(OptionError) as caught:
        Options.parse(options)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None  # pydantic's error is not shown beside it
    return str(caught.value)


def test_the_module_needs_neither_spark_nor_a_kafka_client() -> None:
    look = "import sys, spark_groupsource.options.model; print({'pyspark', 'confluent_kafka'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", look], check=True, capture_output=True, text=True).stdout.strip() == "set()"


# --- What may be written -----------------------------------------------------------------------------------------------------


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
    assert parse(assignmentTimeout=text).assignment_timeout_ms == milliseconds


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


# --- What is refused ---------------------------------------------------------------------------------------------------------

REFUSALS: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "nothing at all": (
        {},
        ("subscribe or subscribePattern is missing", "kafka.bootstrap.servers is missing", "kafka.group.id is missing"),
    ),
    "no group": ({"kafka.bootstrap.servers": "a:1", "subscribe": "t"}, ("kafka.group.id is missing", "consumer group")),
    "no servers": ({"kafka.group.id": "g", "subscribe": "t"}, ("kafka.bootstrap.servers is missing", "host:port")),
    "a blank group": ({**BASE, "kafka.group.id": " "}, ("kafka.group.id = ' '", "not empty")),
    "servers without a port": ({**BASE, "kafka.bootstrap.servers": "a:1,b"}, ("kafka.bootstrap.servers = 'a:1,b'", "host:port")),
    "two subscriptions": ({**BASE, "subscribePattern": "o.*"}, ("subscribe and subscribePattern exclude each other",)),
    "assign": ({**NEEDED, "assign": '{"t":[0]}'}, ("assign: a consumer group assigns", "Write subscribe", 'format("kafka")')),
    "no topics": ({**BASE, "subscribe": " , "}, ("subscribe = ' , '", "names of topics")),
    "a pattern as a topic": ({**BASE, "subscribe": "^orders.*"}, ("subscribe = '^orders.*'", "subscribePattern")),
    "a blank pattern": ({**NEEDED, "subscribePattern": " "}, ("subscribePattern = ' '", "regular expression")),
    "misspelt": ({**BASE, "startingOffset": "earliest"}, ("startingoffset", "Did you mean startingOffsets")),
    "without its prefix": ({**BASE, "group.id": "g"}, ("group.id", "Did you mean kafka.group.id?")),
    "unheard of": ({**BASE, "zzz": "1"}, ("zzz", "The options are assignmentTimeout,")),
    "a path": ({**BASE, "path": "/data"}, ("path: there is no option of this name",)),
    "no partitions": ({**BASE, "minPartitions": "0"}, ("minPartitions = '0'", "whole number from 1")),
    "no records": ({**BASE, "maxrecordsperpartition": "-1"}, ("maxRecordsPerPartition = '-1'", "whole number from 1")),
    "a least above the most": (
        {**BASE, "minOffsetsPerTrigger": "11", "maxOffsetsPerTrigger": "10"},
        ("minOffsetsPerTrigger (11) is higher than maxOffsetsPerTrigger (10)",),
    ),
    "no time to start at": (
        {**BASE, "startingTimestamp": "now"},
        ("startingTimestamp = 'now'", "whole number from 0"),
    ),
    "a time before 1970": (
        {**BASE, "startingOffsetsByTimestamp": '{"orders":{"0":-1}}'},
        ("-1 is not a time for orders-0", "milliseconds since 1970"),
    ),
    "times of other topics": (
        {**BASE, "startingOffsetsByTimestamp": '{"payments":{"0":1}}'},
        ("startingOffsetsByTimestamp names topics that are not subscribed to: payments",),
    ),
    "no such strategy": (
        {**BASE, "startingOffsetsByTimestampStrategy": "earliest"},
        ("startingOffsetsByTimestampStrategy = 'earliest'", "error or latest"),
    ),
    "an end that is no end": ({**BASE, "endingOffsets": "earliest"}, ("endingOffsets = 'earliest'", "latest or JSON such as")),
    "outstanding claims": (
        {**BASE, "outstandingClaims": "re-read"},
        ("outstandingClaims = 're-read'", "hold, reread or reread-after with a duration, such as reread-after 10m"),
    ),
    "reread after nothing": ({**BASE, "outstandingClaims": "reread-after"}, ("hold, reread or reread-after with",)),
    "reread after no time": ({**BASE, "outstandingClaims": "reread-after 0s"}, ("a duration such as 500ms",)),
    "a grace that is no time": ({**BASE, "outstandingClaims.grace": "soon"}, ("outstandingClaims.grace = 'soon'",)),
    "not a boolean": ({**BASE, "failOnDataLoss": "no"}, ("failOnDataLoss = 'no'", "true or false")),
    "not a number": ({**BASE, "maxOffsetsPerTrigger": "1_000"}, ("maxOffsetsPerTrigger = '1_000'", "whole number from 1")),
    "zero offsets": ({**BASE, "maxOffsetsPerTrigger": "0"}, ("maxOffsetsPerTrigger = '0'",)),
    "above a long": ({**BASE, "maxOffsetsPerTrigger": str(2**63)}, ("maxOffsetsPerTrigger",)),
    "negative retries": ({**BASE, "fetchOffset.numRetries": "-1"}, ("fetchOffset.numRetries = '-1'",)),
    "no such hand-off": ({**BASE, "handoff": "later"}, ("handoff = 'later'", "drain or immediate")),
    "no such unit": ({**BASE, "assignmentTimeout": "2 weeks"}, ("assignmentTimeout = '2 weeks'", "30s")),
    "no time": ({**BASE, "assignmentTimeout": "0s"}, ("assignmentTimeout = '0s'",)),
    "under a millisecond": ({**BASE, "assignmentTimeout": "10us"}, ("assignmentTimeout = '10us'",)),
    "draining for too long": (
        {**BASE, "handoff.drainTimeout": "5m"},
        ("handoff.drainTimeout (300000 ms)", "below kafka.max.poll.interval.ms (300000 ms)"),
    ),
    "draining longer than a short poll interval": (
        {**BASE, "kafka.max.poll.interval.ms": "20000", "kafka.session.timeout.ms": "10000"},
        ("handoff.drainTimeout (30000 ms)", "kafka.max.poll.interval.ms (20000 ms)"),
    ),
    "not JSON": ({**BASE, "startingOffsets": "{"}, ("startingOffsets = '{'", "earliest, latest, committed or JSON")),
    "no word": ({**BASE, "startingOffsets": "newest"}, ("startingOffsets = 'newest'", "earliest, latest, committed or JSON")),
    "another JSON": ({**BASE, "startingOffsets": '{"orders":[0]}'}, ("startingOffsets", "earliest, latest, committed or JSON")),
    "JSON of nothing": ({**BASE, "startingOffsets": "{}"}, ("names no partition",)),
    "a partition by name": (
        {**BASE, "startingOffsets": '{"orders":{"first":0}}'},
        ("'first' is not a partition of topic 'orders'",),
    ),
    "an offset below -2": ({**BASE, "startingOffsets": '{"orders":{"0":-3}}'}, ("-3 is not an offset of orders-0",)),
    "a fraction": ({**BASE, "startingOffsets": '{"orders":{"0":1.5}}'}, ("1.5 is not an offset of orders-0",)),
    "a boolean offset": ({**BASE, "startingOffsets": '{"orders":{"0":true}}'}, ("True is not an offset of orders-0",)),
    "a partition twice": ({**BASE, "startingOffsets": '{"orders":{"0":1,"0":2}}'}, ("startingOffsets", "twice")),
    "nested for ever": ({**BASE, "startingOffsets": "[" * 100_000}, ("earliest, latest, committed or JSON",)),
    "offsets of other topics": (
        {**BASE, "startingOffsets": '{"orders":{"0":1},"payments":{"0":1}}'},
        ("startingOffsets names topics that are not subscribed to: payments",),
    ),
    "auto.offset.reset": ({**BASE, "kafka.auto.offset.reset": "earliest"}, ("kafka.auto.offset.reset", "startingOffsets")),
    "Kafka's own topics under KIP-848": (
        {**NEEDED, "subscribePattern": ".*", "kafka.group.protocol": "consumer"},
        ("subscribePattern = '.*'", "__consumer_offsets", "[^_]"),
    ),
}


@pytest.mark.parametrize(("options", "told"), REFUSALS.values(), ids=REFUSALS)
def test_the_error_names_the_option_the_value_and_what_is_allowed(options: dict[str, str], told: tuple[str, ...]) -> None:
    message = refusal(options)
    assert [fragment for fragment in told if fragment not in message] == []


REFUSALS_OF_A_STREAM: dict[str, tuple[dict[str, str], str]] = {
    "an end": ({"endingOffsets": "latest"}, "endingOffsets is for spark.read only: a stream has no end"),
    "an end by time": ({"endingoffsetsbytimestamp": '{"orders":{"0":1}}'}, "endingOffsetsByTimestamp is for spark.read only"),
    "a time to end at": ({"endingTimestamp": "1"}, "endingTimestamp is for spark.read only"),
    "commits of its own": ({"commitOffsets": "false"}, "commitOffsets is for spark.read only"),
    "what is committed": ({"startingOffsets": "committed"}, "startingOffsets = 'committed' is for spark.read only"),
}

REFUSALS_OF_A_BATCH: dict[str, tuple[dict[str, str], str]] = {
    "a start at the latest": ({"startingOffsets": "latest"}, "startingOffsets: a batch read cannot start at the latest"),
    "a partition's start at the latest": ({"startingOffsets": '{"orders":{"0":-1}}'}, "cannot start at the latest"),
    "a partition's end at the earliest": ({"endingOffsets": '{"orders":{"0":-2}}'}, "cannot end at the earliest"),
    "other partitions": (
        {"startingOffsets": '{"orders":{"0":1,"1":1}}', "endingOffsets": '{"orders":{"0":2}}'},
        "startingOffsets and endingOffsets name different partitions; in one of them only: orders-1",
    ),
    "the wrong way round": (
        {"startingOffsets": '{"orders":{"0":5}}', "endingOffsets": '{"orders":{"0":4}}'},
        "orders-0: startingOffsets (5) is above endingOffsets (4)",
    ),
    "times the wrong way round": (
        {"startingOffsetsByTimestamp": '{"orders":{"0":5}}', "endingOffsetsByTimestamp": '{"orders":{"0":4}}'},
        "orders-0: startingOffsetsByTimestamp (5) is above endingOffsetsByTimestamp (4)",
    ),
    "commits of what was not read": ({"commitOffsets": "true"}, "commitOffsets=true needs startingOffsets=committed"),
    "commits of pieces": (
        {"commitOffsets": "true", "startingOffsets": "committed", "minPartitions": "8"},
        "commitOffsets=true excludes minPartitions",
    ),
}


@pytest.mark.parametrize(("options", "told"), REFUSALS_OF_A_STREAM.values(), ids=REFUSALS_OF_A_STREAM)
def test_what_a_stream_cannot_use_is_refused_there_only(options: dict[str, str], told: str) -> None:
    Options.parse({**BASE, **options})
    with pytest.raises(OptionError, match=re.escape(told)):
        Options.parse({**BASE, **options}, "stream")


@pytest.mark.parametrize(("options", "told"), REFUSALS_OF_A_BATCH.values(), ids=REFUSALS_OF_A_BATCH)
def test_what_a_batch_read_cannot_use_is_refused_there_only(options: dict[str, str], told: str) -> None:
    Options.parse({**BASE, **options})
    with pytest.raises(OptionError, match=re.escape(told)):
        Options.parse({**BASE, **options}, "batch")


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_every_refused_option_is_named_once_with_its_reason(name: str) -> None:
    options = {**(NEEDED if name == "assign" else BASE), name: "hunter2"}
    assert refusal(options) == f"{name}: {REFUSED[name]}."


def test_all_mistakes_are_in_one_error() -> None:
    message = refusal(
        {**BASE, "handoff": "x", "startingOffset": "x", "minPartitions": "x", "kafka.acks": "x", "kafka.check.crcs": "x"}
    )
    assert message.startswith("5 options are wrong:")
    assert message.count("\n  - ") == 5


def test_the_nearest_names_are_those_that_a_typist_meant() -> None:
    for name in (
        "subscribePatern",
        "failOnDataLos",
        "maxOffsetPerTrigger",
        "includeHeader",
        "handoff.drainTimeOuts",
        "asignmentTimeout",
    ):
        told = re.search(r"Did you mean (\w[\w.]*)", refusal({**BASE, name: "1"}))
        assert told
        assert difflib.SequenceMatcher(None, told[1].lower(), name.lower()).ratio() > 0.9


# --- Patterns ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("java", "given_to_kafka", "matching", "other"),
    [
        ("orders", "^(orders)$", "orders", "orders-1"),
        ("orders|payments", "^(orders|payments)$", "payments", "payments-orders"),
        (r"orders-\d+", "^(orders-[0-9]+)$", "orders-42", "orders-x"),
        (r"(?:eu|us)\.[\w\-]+", r"^((eu|us)\.[A-Za-z0-9_-]+)$", "eu.a-b_c", "uk.a"),
        (r"(?<region>eu|us)-.*?", "^((eu|us)-.*)$", "us-", "us"),
        (r"\Qa.b\E.*", r"^(a\.b.*)$", "a.b.c", "aXb"),
        (r"\Aorders\z", "^(^orders$)$", "orders", "xorders"),
        ("^orders$", "^(^orders$)$", "orders", "orders1"),
        (r"[^_\d].*", "^([^0-9_].*)$", "orders", "_orders"),
        (r"a{2,3}b{1}c{0,}", "^(a{2,3}b{1}c{0,})$", "aab", "ab"),
        (r"[.\-^x]+", "^([.x^-]+)$", "x.-", "y"),
        (r"[\^]a", r"^(\^a)$", "^a", "a"),
        (r"a\-b\_c\.d", r"^(a-b_c\.d)$", "a-b_c.d", "a-b_cxd"),
    ],
)
def test_a_java_pattern_means_the_same_to_every_engine(java: str, given_to_kafka: str, matching: str, other: str) -> None:
    options = Options.parse({**NEEDED, "subscribePattern": java})
    assert options.subscribe_pattern == java
    assert options.subscription() == [given_to_kafka]
    assert options.matches(matching)
    assert not options.matches(other)


@pytest.mark.parametrize(
    ("java", "told"),
    [
        ("orders(?!-test).*", "(?! is a look-ahead"),
        ("orders(?=-live).*", "(?= is a look-ahead"),
        (".*(?<!-test)", "(?<! is a look-behind"),
        (".*(?<=-live)", "(?<= is a look-behind"),
        ("(?>a|ab)c", "(?> is an atomic group"),
        ("(?i)orders", "write [Aa]"),
        ("a*+", "possessive repetition: write *"),
        (r"(a)\1", r"\1 cannot be used"),
        (r"\D+", "write [^0-9]"),
        (r"\W+", "write [^A-Za-z0-9_]"),
        (r"a\s", "no blanks"),
        (r"\bword\b", "whole name"),
        (r"\p{Alpha}+", "write a class such as [A-Za-z]"),
        (r"\x41", r"\x cannot be used"),
        (r"[\D]", r"\D cannot be used"),
        ("[a-z&&[^b]]", "a class within a class"),
        ("[[a]b]", "a class within a class"),
        ("[z-a]", "runs backwards"),
        ("[.-9]", "a '-' itself stands last"),
        (r"[\.-9]", "a '-' itself stands last"),
        ("a*?+", "two repetitions in a row"),
        ("a{2}{3}", "two repetitions in a row"),
        ("[]", "an empty class"),
        ("[a", "[ at position 0"),
        ("a]", "] at position 1"),
        ("a{x}", "{ at position 1"),
        ("a{300}", "more than 255 times"),
        ("a||b", "an empty alternative or group"),
        ("(a|)", "an empty alternative or group"),
        ("()", "an empty alternative or group"),
        ("(a", "not a regular expression"),
        ("a)", "not a regular expression"),
        ("*a", "not a regular expression"),
        ("a{3,2}", "not a regular expression"),
        ("bücher", "ASCII"),
    ],
)
def test_what_not_every_engine_has_is_refused_by_name(java: str, told: str) -> None:
    message = refusal({**NEEDED, "subscribePattern": java})
    assert message.startswith(f"subscribePattern = {java!r}: ")
    assert told in message


PIECES = (
    "a",
    "b",
    "0",
    "-",
    "_",
    ".",
    r"\.",
    "[ab]",
    "[.-9]",
    "[a-]",
    "[-b]",
    "[a-b-]",
    "[b-a]",
    "[^^a]",
    "[^a0]",
    r"[\w.-]",
    r"\d",
    r"\w",
    "(a|b)",
    "(?:0|a-)",
    "*",
    "+",
    "?",
    "*?",
    "{1,2}",
    "|",
)


@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=8).map("".join), st.lists(st.text("ab0-_.", max_size=6)))
def test_rewriting_a_pattern_does_not_change_what_it_matches(java: str, names: list[str]) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = re.compile(java)  # Python reads these pieces as Java does
        common = common_pattern(java)
    except (re.error, ValueError):
        return
    assert [bool(re.fullmatch(common, name)) for name in names] == [bool(expected.fullmatch(name)) for name in names]


def test_a_pattern_leaves_kafkas_own_topics_out_as_javas_consumer_does() -> None:
    options = Options.parse({**NEEDED, "subscribePattern": ".*"})
    assert not options.matches("__consumer_offsets")
    assert options.matches("__our_own")
    assert "^__consumer_offsets$" in options.member_settings()["topic.blacklist"]
    assert "topic.blacklist" not in {**options.client_settings(), **options.fetch_settings().client}


def test_kafkas_own_topics_are_read_when_they_are_asked_for() -> None:
    asked = Options.parse({**NEEDED, "subscribePattern": ".*", "kafka.exclude.internal.topics": "false"})
    assert asked.matches("__consumer_offsets")
    named = Options.parse({**NEEDED, "subscribe": "__consumer_offsets"})
    assert named.matches("__consumer_offsets")
    for options in (asked, named):
        assert "topic.blacklist" not in options.member_settings()


# --- What clients are made with ----------------------------------------------------------------------------------------------

SETUPS: dict[str, dict[str, str]] = {
    "by name": BASE,
    "by pattern": {**NEEDED, "subscribePattern": "orders-.*"},
    "KIP-848": {
        **BASE,
        "kafka.group.protocol": "consumer",
        "kafka.group.remote.assignor": "uniform",
        "kafka.max.poll.interval.ms": "40000",
    },
    "static member": {**BASE, "kafka.group.instance.id": "driver-1", "kafka.session.timeout.ms": "6000"},
    "transactions": {**BASE, "kafka.isolation.level": "read_committed"},
    "with a password": {**BASE, **WITH_PASSWORD},
    "fetch sizes": {
        **BASE,
        "kafka.fetch.max.bytes": "2000000",
        "kafka.receive.message.max.bytes": "3000000",
        "kafka.fetch.max.wait.ms": "10",
    },
}


@pytest.mark.parametrize("setup", SETUPS)
def test_librdkafka_takes_all_three_without_a_warning(setup: str, capfd: pytest.CaptureFixture[str]) -> None:
    options = Options.parse({name: value for name, value in SETUPS[setup].items() if name != "kafka.ssl.key.password"})
    Consumer(dict(options.member_settings())).close()
    Consumer(dict(options.fetch_settings().client)).close()
    client = options.client_settings()
    del client["isolation.level"]  # which only consumers have
    AdminClient(dict(client))
    assert "CONFWARN" not in capfd.readouterr().err


def test_a_member_never_commits_or_moves_by_itself() -> None:
    options = Options.parse(BASE)
    for settings in (options.member_settings(), options.fetch_settings().client):
        assert settings["enable.auto.commit"] == settings["enable.auto.offset.store"] == "false"
        assert settings["auto.offset.reset"] == "error"
        assert settings["group.id"] == "billing"


def test_the_isolation_level_is_always_written_out_because_librdkafkas_default_is_not_javas() -> None:
    for settings in (parse().client_settings(), parse().member_settings(), parse().fetch_settings().client):
        assert settings["isolation.level"] == "read_uncommitted"


def test_rebalances_and_new_topics_are_noticed_within_seconds_unless_the_user_says_otherwise() -> None:
    member = parse().member_settings()
    assert (member["heartbeat.interval.ms"], member["topic.metadata.refresh.interval.ms"]) == ("1000", "10000")
    member = parse(**{"kafka.heartbeat.interval.ms": "3000", "kafka.metadata.max.age.ms": "60000"}).member_settings()
    assert (member["heartbeat.interval.ms"], member["topic.metadata.refresh.interval.ms"]) == ("3000", "60000")


def test_under_kip_848_the_broker_decides_on_heartbeats_and_assignors() -> None:
    options = Options.parse(SETUPS["KIP-848"])
    assert {"heartbeat.interval.ms", "partition.assignment.strategy", "session.timeout.ms"} & set(
        options.member_settings()
    ) == set()
    assert (options.group_protocol, options.assignment_strategy) == ("consumer", "uniform")


def test_clients_that_are_no_members_are_not_given_a_members_settings() -> None:
    options = Options.parse({**SETUPS["static member"], **SETUPS["fetch sizes"]})
    assert options.fetch_settings().client["fetch.wait.max.ms"] == "10"
    assert not {"group.instance.id", "session.timeout.ms", "group.protocol"} & set(options.fetch_settings().client)
    assert not {"group.id", "group.instance.id", "fetch.max.bytes"} & set(options.client_settings())


def test_librdkafka_warns_and_says_no_more_unless_it_is_asked_to() -> None:
    assert parse().client_settings()["log_level"] == "4"
    assert parse(**{"kafka.log_level": "7"}).client_settings()["log_level"] == "7"


# --- Secrets -----------------------------------------------------------------------------------------------------------------


def test_secrets_reach_the_clients_and_no_text() -> None:
    options = parse(**WITH_PASSWORD)
    for settings in (options.client_settings(), options.member_settings(), options.fetch_settings().client):
        assert settings["sasl.password"] == settings["ssl.key.password"] == "hunter2"
    again = pickle.loads(pickle.dumps(options))  # noqa: S301
    for text in (
        repr(options),
        str(options),
        f"{options}",
        repr(again),
        repr(options.kafka),
        options.model_dump_json(),
        repr(options.model_dump()),
    ):
        assert "hunter2" not in text
    assert "alice" in repr(options)


SECRET_OPTIONS = (
    "kafka.sasl.jaas.config",
    "kafka.sasl.password",
    "kafka.ssl.key.password",
    "kafka.ssl.keystore.key",
    "kafka.ssl.keystore.password",
    "kafka.ssl.truststore.password",
    "kafka.ssl.key.pem",
    "kafka.sasl.oauthbearer.client.secret",
    "kafka.sasl.oauthbearer.config",
    # misspelt, or where it does not belong
    "kafka.sasl.passwrod",
    "kafka.sasl.jass.config",
    "sasl.password",
    "pasword",
    "assign",
)


@given(
    st.dictionaries(st.sampled_from(SECRET_OPTIONS), st.text(max_size=12).map(lambda text: f"hunter2{text}"), min_size=1),
    st.sampled_from(sorted(REFUSALS)),
)
def test_no_secret_is_in_any_error(secrets: dict[str, str], case: str) -> None:
    assert "hunter2" not in refusal({**REFUSALS[case][0], **secrets})


@given(st.dictionaries(st.text(max_size=12), st.text(max_size=12)))
def test_nonsense_ends_in_an_option_error(options: dict[str, str]) -> None:
    with pytest.raises(OptionError):
        Options.parse(options)


NAMES = [field.alias or name for name, field in Options.model_fields.items()]


@given(st.dictionaries(st.sampled_from(NAMES), st.text(max_size=12) | st.just(json.dumps({"orders": {"0": 1}}))))
def test_any_value_is_taken_or_refused_by_an_option_error(options: dict[str, str]) -> None:
    try:
        Options.parse({**BASE, **options})
    except OptionError:
        return
