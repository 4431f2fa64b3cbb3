"""`groupkafka check`: the group protocol of KIP-848."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from devtools.broker import Cluster
from spark_groupsource.brokers.group_admin import GroupAdmin
from spark_groupsource.errors import GroupNotFound
from tests.conftest import NOT_FENCED, MakeTopic
from tests.kafka.check.conftest import Check, query


def test_the_new_protocol_is_tried_without_a_member(
    topic: MakeTopic,
    cluster: Cluster,
    check: Check,
    plain: Mapping[str, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    name = topic()
    checked = check(query(name, plain, kafka_group_protocol="consumer"))
    assert checked.exit_code == 0, checked.output
    assert checked.level("protocol") == "ok"
    assert "the brokers have kafka.group.protocol=consumer" in checked.of("protocol")[0][2]
    assert "FATAL" not in caplog.text, "the refusal was asked for"
    with pytest.raises(GroupNotFound):
        GroupAdmin({"bootstrap.servers": cluster.bootstrap_servers}).describe(name)


@pytest.mark.versions
def test_brokers_on_which_the_new_protocol_is_disabled(check: Check) -> None:
    with Cluster(config={"group.coordinator.rebalance.protocols": "classic", **NOT_FENCED}) as older:
        older.create_topic("orders")
        plain = {"kafka.bootstrap.servers": older.bootstrap_servers}
        checked = check(query("orders", plain))
        assert checked.exit_code == 0, checked.output
        assert not checked.of("protocol")
        needed = check(query("orders", plain, kafka_group_protocol="consumer"))
        assert needed.failed == ["protocol"]
        assert "Set it to classic" in needed.errors[0][2]
