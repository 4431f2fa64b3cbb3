"""Options that are refused: the error names the option, what is allowed and what to write, and shows no secret."""

from __future__ import annotations

import json
import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_groupsource.errors import OptionError
from spark_groupsource.options.model import DESCRIBED, Options
from spark_groupsource.options.sink_model import SinkOptions
from tests.support.options import BASE, NEEDED, WITH_PASSWORD, parse, refusal
from tests.unit.kafka_settings.test_secrets import SECRETS

REFUSALS: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "nothing at all": (
        {},
        ("subscribe or subscribePattern is missing", "kafka.bootstrap.servers is missing", "kafka.group.id is missing"),
    ),
    "a blank group": ({**BASE, "kafka.group.id": " "}, ("kafka.group.id = ' '", "non-empty")),
    "servers without a port": ({**BASE, "kafka.bootstrap.servers": "a:1,b"}, ("kafka.bootstrap.servers = 'a:1,b'", "host:port")),
    "servers with a password": (
        {**BASE, "kafka.bootstrap.servers": "me:hush@a:1"},
        ("kafka.bootstrap.servers = '********@a:1'", "write host:port"),
    ),
    "servers of another protocol": (
        {**BASE, "kafka.bootstrap.servers": "plaintext://a:1,SSL://b:1"},
        ("SSL:// is not kafka.security.protocol, which is plaintext",),
    ),
    "two subscriptions": ({**BASE, "subscribePattern": "o.*"}, ("subscribe and subscribePattern cannot be combined",)),
    "no topics": ({**BASE, "subscribe": " , "}, ("subscribe = ' , '", "topic names are expected")),
    "a pattern as a topic": ({**BASE, "subscribe": "^orders.*"}, ("subscribe = '^orders.*'", "subscribePattern")),
    "a blank pattern": ({**NEEDED, "subscribePattern": " "}, ("subscribePattern = ' '", "regular expression")),
    "without its prefix": ({**BASE, "group.id": "g"}, ("group.id", "Did you mean kafka.group.id?")),
    "the name of another connector": (
        {**NEEDED, "topic": "orders"},
        ("topic: there is no option with this name. Did you mean subscribe?",),
    ),
    "no partitions": ({**BASE, "minPartitions": "0"}, ("minPartitions = '0'", "whole number from 1")),
    "a least above the most": (
        {**BASE, "minOffsetsPerTrigger": "11", "maxOffsetsPerTrigger": "10"},
        ("minOffsetsPerTrigger (11) is higher than maxOffsetsPerTrigger (10)",),
    ),
    "a time before 1970": (
        {**BASE, "startingOffsetsByTimestamp": '{"orders":{"0":-1}}'},
        ("-1 is not a time for orders-0", "milliseconds since 1970"),
    ),
    "times of other topics": (
        {**BASE, "startingOffsetsByTimestamp": '{"payments":{"0":1}}'},
        ("startingOffsetsByTimestamp names topics that the query does not subscribe to: payments",),
    ),
    "an end that is no end": ({**BASE, "endingOffsets": "earliest"}, ("endingOffsets = 'earliest'", "latest or JSON such as")),
    "held claims": (
        {**BASE, "heldClaims": "re-read"},
        ("heldClaims = 're-read'", "hold, reread, or reread-after with a duration such as reread-after 10m"),
    ),
    "reread after no time": (
        {**BASE, "heldClaims": "reread-after 0s"},
        ("a duration of at least 1ms is expected",),
    ),
    "not a boolean": ({**BASE, "failOnDataLoss": "no"}, ("failOnDataLoss = 'no'", "true or false")),
    "not a number": ({**BASE, "maxOffsetsPerTrigger": "1_000"}, ("maxOffsetsPerTrigger = '1_000'", "whole number from 1")),
    "no such unit": ({**BASE, "assignmentTimeout": "2 weeks"}, ("assignmentTimeout = '2 weeks'", "30s")),
    "a month": ({**BASE, "maxTriggerDelay": "30d"}, ("maxTriggerDelay = '30d'", "a duration of at most 24d")),
    "draining for too long": (
        {**BASE, "handoff.drainTimeout": "5m"},
        ("handoff.drainTimeout (300000 ms)", "below kafka.max.poll.interval.ms (300000 ms)"),
    ),
    "draining longer than a short poll interval": (
        {**BASE, "kafka.max.poll.interval.ms": "20000", "kafka.session.timeout.ms": "10000"},
        ("(30000 ms) must be below kafka.max.poll.interval.ms (20000 ms)", "lower one or raise the other"),
    ),
    "draining for as long as a new member waits": (
        {**BASE, "assignmentTimeout": "30s"},
        ("handoff.drainTimeout (30000 ms)", "below assignmentTimeout (30000 ms)"),
    ),
    "no word": ({**BASE, "startingOffsets": "newest"}, ("startingOffsets = 'newest'", "earliest, latest, committed or JSON")),
    "JSON of nothing": ({**BASE, "startingOffsets": "{}"}, ("names no partition",)),
    "a partition by name": (
        {**BASE, "startingOffsets": '{"orders":{"first":0}}'},
        ("'first' is not a partition of topic 'orders'",),
    ),
    "an offset below -2": ({**BASE, "startingOffsets": '{"orders":{"0":-3}}'}, ("-3 is not an offset of orders-0",)),
    "a boolean offset": ({**BASE, "startingOffsets": '{"orders":{"0":true}}'}, ("True is not an offset of orders-0",)),
    "a partition twice": ({**BASE, "startingOffsets": '{"orders":{"0":1,"0":2}}'}, ("startingOffsets", "duplicated")),
    "nested for ever": ({**BASE, "startingOffsets": "[" * 100_000}, ("earliest, latest, committed or JSON",)),
    "offsets of other topics": (
        {**BASE, "startingOffsets": '{"orders":{"0":1},"payments":{"0":1}}'},
        ("startingOffsets names topics that the query does not subscribe to: payments",),
    ),
    "Kafka's own topics under KIP-848": (
        {**NEEDED, "subscribePattern": ".*", "kafka.group.protocol": "consumer"},
        ("subscribePattern = '.*'", "__consumer_offsets", "[^_]"),
    ),
}


@pytest.mark.parametrize(("options", "said"), REFUSALS.values(), ids=REFUSALS)
def test_the_error_names_the_option_the_value_and_what_is_allowed(options: dict[str, str], said: tuple[str, ...]) -> None:
    message = refusal(options)
    assert [fragment for fragment in said if fragment not in message] == []


REFUSALS_OF_A_STREAM: dict[str, tuple[dict[str, str], str]] = {
    "an end": ({"endingOffsets": "latest"}, "endingOffsets is for spark.read only: a stream has no end"),
    "what is committed": ({"startingOffsets": "committed"}, "startingOffsets = 'committed' is for spark.read only"),
}

REFUSALS_OF_A_BATCH: dict[str, tuple[dict[str, str], str]] = {
    "a start at the latest": ({"startingOffsets": "latest"}, "startingOffsets: a batch read cannot start at latest"),
    "a partition's start at the latest": ({"startingOffsets": '{"orders":{"0":-1}}'}, "cannot start at latest"),
    "a partition's end at the earliest": ({"endingOffsets": '{"orders":{"0":-2}}'}, "cannot end at earliest"),
    "other partitions": (
        {"startingOffsets": '{"orders":{"0":1,"1":1}}', "endingOffsets": '{"orders":{"0":2}}'},
        "startingOffsets and endingOffsets must name the same partitions. Only one of them names orders-1",
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
        "commitOffsets=true cannot be combined with minPartitions",
    ),
}


@pytest.mark.parametrize(("options", "said"), REFUSALS_OF_A_STREAM.values(), ids=REFUSALS_OF_A_STREAM)
def test_what_a_stream_cannot_use_is_refused_there_only(options: dict[str, str], said: str) -> None:
    Options.parse({**BASE, **options})
    with pytest.raises(OptionError, match=re.escape(said)):
        Options.parse({**BASE, **options}, "stream")


@pytest.mark.parametrize(("options", "said"), REFUSALS_OF_A_BATCH.values(), ids=REFUSALS_OF_A_BATCH)
def test_what_a_batch_read_cannot_use_is_refused_there_only(options: dict[str, str], said: str) -> None:
    Options.parse({**BASE, **options})
    with pytest.raises(OptionError, match=re.escape(said)):
        Options.parse({**BASE, **options}, "batch")


def test_all_mistakes_are_in_one_error() -> None:
    message = refusal(
        {**BASE, "failOnDataLoss": "x", "startingOffset": "x", "minPartitions": "x", "kafka.acks": "x", "kafka.check.crcs": "x"}
    )
    assert message.startswith("5 options are wrong:")
    assert message.count("\n  - ") == 5


def test_a_misspelt_name_is_shown_with_what_the_user_probably_meant() -> None:
    for name in ("startingOffset", "maxoffsetpertrigger", "fail_on_data_loss", "handoff.draintimeouts"):
        assert refusal({**BASE, name: "1"}).startswith(f"{name}: there is no option with this name. Did you mean ")
    with pytest.raises(OptionError, match=r"^deliveryguarante: .*Did you mean deliveryGuarantee\?$"):
        SinkOptions.parse({"kafka.bootstrap.servers": "a:1", "deliveryguarante": "at-least-once"}, "stream")


def test_the_topics_of_a_sink_and_of_a_source_are_not_mixed_up() -> None:
    assert refusal({**NEEDED, "topic": "orders"}) == "topic: there is no option with this name. Did you mean subscribe?"
    with pytest.raises(OptionError, match=r"^subscribe: there is no option with this name\. Did you mean topic\?$"):
        SinkOptions.parse({"kafka.bootstrap.servers": "a:1", "subscribe": "orders"}, "stream")


def test_secrets_reach_the_clients_and_no_text() -> None:
    options = parse(**WITH_PASSWORD)
    for settings in (options.client_settings(), options.member_settings(), options.fetch_settings().client):
        assert settings["sasl.password"] == settings["ssl.key.password"] == "hunter2"
    again = pickle.loads(pickle.dumps(options))  # noqa: S301
    for text in (
        repr(options),
        str(options),
        repr(again),
        repr(options.kafka),
        options.model_dump_json(),
        repr(options.model_dump()),
    ):
        assert "hunter2" not in text
    assert "alice" in repr(options)


SECRET_OPTIONS = [*(f"kafka.{name}" for name in SECRETS), "kafka.sasl.jass.config", "sasl.password", "pasword", "assign"]


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


@given(st.dictionaries(st.sampled_from([*DESCRIBED]), st.text(max_size=12) | st.just(json.dumps({"orders": {"0": 1}}))))
def test_any_value_is_taken_or_refused_by_an_option_error(options: dict[str, str]) -> None:
    try:
        Options.parse({**BASE, **options})
    except OptionError:
        return
