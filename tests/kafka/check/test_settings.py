"""`groupkafka check`: the brokers' settings of sessions and commits."""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import Producer

from devtools.broker import Cluster
from tests.conftest import MakeTopic
from tests.kafka.check.conftest import Check, Checked, query
from tests.support.consumers import commit_as_another_client, joined
from tests.support.producing import send


def test_a_session_that_the_brokers_refuse_is_an_error(topic: MakeTopic, check: Check, plain: Mapping[str, str]) -> None:
    name = topic()
    longer = {"kafka_session_timeout_ms": "1800001", "kafka_max_poll_interval_ms": "1800001"}
    checked = check(query(name, plain, **longer))
    assert checked.failed == ["session"]
    assert "kafka.session.timeout.ms=1800001 is above group.max.session.timeout.ms (1800000)" in checked.errors[0][2]
    assert "Set it to 1000 to 1800000" in checked.errors[0][2]
    fits = check(query(name, plain))
    assert "kafka.session.timeout.ms=45000: the brokers accept 1000 to 1800000" in fits.of("session")[0][2]
    theirs = check(query(name, plain, kafka_group_protocol="consumer"))
    assert "group.consumer.session.timeout.ms is 6000" in theirs.of("session")[0][2]


def test_commits_that_may_have_been_left_for_too_long(
    topic: MakeTopic, cluster: Cluster, check: Check, plain: Mapping[str, str]
) -> None:
    name, day_ms = topic(), 86_400_000
    group, now_ms = f"group-of-{name}", round(time.time() * 1000)
    options = query(name, plain, kafka_group_id=group)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})

    def left_at(offset: int, written_ms: int) -> Checked:
        """Write one more record, commit this offset without a member, and check."""
        send(producer, name, "x", partition=0, timestamp=written_ms)
        assert producer.flush(30) == 0
        commit_as_another_client(cluster, group, name, offset)
        return check(options)

    assert not check(options).of("retention"), "the group has no commits"
    old = left_at(1, now_ms - 9 * day_ms)
    assert old.level("retention") == "ok"
    assert "since when it is idle is not known" in old.of("retention")[0][2]
    unread = left_at(1, now_ms - day_ms)
    assert (unread.level("retention"), unread.exit_code) == ("warning", 0)
    assert "kept for 7 days without members" in unread.of("retention")[0][2]
    assert f"in {name}-0 for example" in unread.of("retention")[0][2]
    read = left_at(2, now_ms)
    assert read.level("retention") == "ok"
    assert "has read within this time" in read.of("retention")[0][2]
    with joined(cluster, group, name, 1):
        assert "it has members" in check(options).of("retention")[0][2]
