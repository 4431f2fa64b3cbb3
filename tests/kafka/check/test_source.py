"""`groupkafka check`: an options file that is right, and mistakes in it, against real brokers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import pytest

from spark_groupsource.brokers.group_admin import GroupAdmin
from spark_groupsource.errors import GroupNotFound
from tests.conftest import MakeTopic
from tests.kafka.check.conftest import Check, query
from tests.support.secured import Secured


@pytest.mark.parametrize("login", ["SCRAM-SHA-512", "oauth_cb"])
def test_what_is_right_is_all_ok_and_leaves_no_trace(
    secured: Secured, secured_topic: Callable[[str], str], check: Check, login: str
) -> None:
    topic = secured_topic("open-")
    checked = check(query(topic, secured.login(login), startingOffsets="earliest"))
    assert checked.exit_code == 0, checked.output
    assert {line[0] for line in checked.lines} == {"ok"}
    assert checked.summary == "0 errors, 0 warnings: the query can run"
    assert [line[1] for line in checked.lines] == [
        *("options", "brokers", "security", "topics", "group", "assignor", "settings", "reader"),
        *("start", "fetch", "isolation", "claims"),
    ]
    assert "were not compared with the brokers' settings" in checked.of("settings")[0][2]
    assert "takes the ACL DESCRIBE_CONFIGS on the cluster" in checked.of("settings")[0][2]
    mechanism = "OAUTHBEARER" if login == "oauth_cb" else login
    assert f"{mechanism}: the login is accepted, the brokers' certificate is trusted" in checked.of("security")[0][2]
    assert f"{topic} (1 partitions): found, and may be read" in checked.of("topics")[0][2]
    assert "joining it is allowed" in checked.of("group")[0][2]
    assert "1 without a commit at the earliest (startingOffsets); 10 offsets to read" in checked.of("start")[0][2]
    assert f"has read 10 records of {topic}-0 [0, 10)" in checked.of("fetch")[0][2]
    with pytest.raises(GroupNotFound):
        GroupAdmin({"bootstrap.servers": secured.cluster.bootstrap_servers}).describe(topic)


def test_each_mistake_in_the_file_is_a_line_and_no_secret_is_shown(check: Check) -> None:
    checked = check(
        {
            "kafka.bootstrap.servers": "localhost",
            "subscribe": "orders",
            "startingOfsets": "earliest",
            "failOnDataLoss": "later",
            "kafka.sasl.jaas.config": "hunter2",
        }
    )
    assert checked.exit_code == 1
    assert {line[1] for line in checked.lines} == {"options"}
    assert len(checked.errors) == len(checked.lines) >= 5
    assert "hunter2" not in checked.output
    for problem in ("host:port", "kafka.group.id is missing", "Did you mean startingOffsets", "failOnDataLoss = 'later'", "jaas"):
        assert problem in checked.output


def test_as_json_the_same_findings_come_in_one_object(topic: MakeTopic, check: Check, plain: Mapping[str, str]) -> None:
    name = topic()
    lines = check(query(name, plain))
    checked = json.loads(check(query(name, plain), "--json").output)
    assert checked.keys() == {"file", "errors", "warnings", "findings"}
    assert (checked["errors"], checked["warnings"]) == (0, 0)
    assert [(one["level"], one["check"], one["text"]) for one in checked["findings"]] == lines.lines
    wrong = check({"subscribe": "orders"}, "--json")
    assert wrong.exit_code == 1
    assert json.loads(wrong.output)["errors"] == 2
