"""Options: what may be written, and what it means."""

from __future__ import annotations

import ast
import copy
import pickle
import re
import sys
from pathlib import Path

import pytest

from spark_groupsource.errors import OptionError
from spark_groupsource.handoff.rules import HOLD, HeldClaims
from spark_groupsource.options import model
from spark_groupsource.options.model import Options
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
    "group_id": ("billing", "KAFKA.GROUP.ID", "Billing", "Billing"),
    "group_instance_id": (None, "kafka.Group.Instance.Id", "driver-1", "driver-1"),
    "read_committed": (False, "kafka.isolation.level", "read_committed", True),
    "max_poll_interval_ms": (300_000, "kafka.max.poll.interval.ms", "60000", 60_000),
    "assignment_strategy": ("cooperative-sticky", "kafka.partition.assignment.strategy", f"{ASSIGNORS}RangeAssignor", "range"),
    "drain_timeout_ms": (30_000, "handoff.draintimeout", "20s", 20_000),
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


def test_a_prefix_of_group_ids_has_no_effect_as_in_spark() -> None:
    assert parse(groupIdPrefix="jobs") == parse()


def test_how_sparks_source_retries_offsets_has_no_effect() -> None:
    assert parse(**{"fetchOffset.numRetries": "5", "fetchOffset.retryIntervalMs": "100"}) == parse()


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ({}, HeldClaims(chosen=False)),
        ({"heldClaims": "hold"}, HOLD),
        ({"heldclaims": " Reread "}, HeldClaims(reread_after_s=0)),
        ({"heldClaims": "reread-after 10m"}, HeldClaims(reread_after_s=600)),
    ],
    ids=str,
)
def test_claims_of_others_are_held_unless_the_user_says_otherwise(given: dict[str, str], chosen: HeldClaims) -> None:
    assert Options.parse({**BASE, **given}).held_claims_choice() == chosen


def test_options_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        parse().include_headers = True  # type: ignore[misc]
    with pytest.raises(TypeError):
        parse().kafka["group.id"] = "other"  # type: ignore[index]


def test_options_survive_a_pickle_and_a_copy() -> None:
    options = parse(startingOffsets='{"orders":{"0":1}}')
    assert pickle.loads(pickle.dumps(options)) == options  # noqa: S301
    assert copy.deepcopy(options) == options


class TestTheMetricsPort:
    def test_a_port_is_served_on_this_machine_only_unless_a_host_is_given(self) -> None:
        options = Options.parse({**BASE, "metrics.port": "9400"}, "stream")
        assert (options.metrics_host, options.metrics_port) == ("127.0.0.1", 9400)

    @pytest.mark.parametrize("host", ["0.0.0.0", "::", "::1", "driver-1.example.com"])  # noqa: S104
    def test_a_host_is_a_name_or_an_address(self, host: str) -> None:
        assert Options.parse({**BASE, "metrics.port": "0", "metrics.host": host}, "stream").metrics_host == host

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"metrics.port": "65536"}, "metrics.port = '65536': a whole number from 0 to 65535"),
            (
                {"metrics.port": "1", "metrics.host": "localhost:9400"},
                "metrics.host = 'localhost:9400': a host name or an address without a port",
            ),
            ({"metrics.port": "1", "metrics.host": "a..b"}, "metrics.host = 'a..b': a host name or an address without a port"),
            ({"metrics.port": "1", "metrics.host": " "}, "metrics.host = ' ': a host name or an address without a port"),
            ({"metrics.host": "0.0.0.0"}, "metrics.host has no effect without metrics.port"),  # noqa: S104
        ],
    )
    def test_what_is_wrong_is_told(self, given: dict[str, str], message: str) -> None:
        with pytest.raises(OptionError, match=re.escape(message)):
            Options.parse({**BASE, **given}, "stream")

    def test_a_missing_package_is_told_with_its_command_before_anything_starts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "prometheus_client", None)
        with pytest.raises(OptionError, match=re.escape("pip install '.[metrics]' in a clone of the project")):
            Options.parse({**BASE, "metrics.port": "9400"}, "stream")
        assert Options.parse(BASE, "stream").metrics_port is None, "nothing is served unless a port is given"


CHECKS = {"_conflicts", "_stream_problems", "_batch_problems"}
"""The methods that only compare options with each other."""


def read_from(tree: ast.AST, *owners: str) -> set[str]:
    """The attributes that code reads from variables or attributes of these names."""
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", getattr(node.value, "attr", None)) in owners
    }


def test_every_option_reaches_the_code_that_acts_on_it() -> None:
    module = Path(model.__file__)
    others = [ast.parse(path.read_text(encoding="utf-8")) for path in module.parents[1].rglob("*.py") if path != module]
    used = set[str]().union(*(read_from(tree, "options", "_options") for tree in others))
    (of_options,) = (node for node in ast.parse(module.read_text(encoding="utf-8")).body if isinstance(node, ast.ClassDef))
    methods = {node.name: read_from(node, "self") for node in of_options.body if isinstance(node, ast.FunctionDef)}
    while more := {name for name in methods.keys() & used - CHECKS if not methods[name] <= used}:
        used = used.union(*(methods[name] for name in more))
    assert [name for name in Options.model_fields if name not in used] == []
