"""Commits of members that the group has removed, on several versions of Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from devtools.broker import Cluster
from spark_groupsource.errors import GenerationChanged, MemberFenced, MemberUnknown
from spark_groupsource.group.member import State
from spark_groupsource.handoff.commit_record import CommitRecord
from tests.conftest import NOT_FENCED, SHORT_SESSIONS, MakeTopic
from tests.kafka.conftest import MakeOptions
from tests.support.streams import MemberStream, member_stream
from tests.support.waiting import until

pytestmark = pytest.mark.versions


@pytest.fixture(scope="module", params=["4.1", None], ids=["4.1", "newest"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(version=request.param, config={**SHORT_SESSIONS, **NOT_FENCED}) as running:
        assert request.param is None or running.version.startswith(request.param)
        yield running


def test_a_member_that_the_group_has_removed_commits_nothing(topic: MakeTopic, options: MakeOptions) -> None:
    name = topic(partitions=2)
    short = options(name, **{"kafka.max.poll.interval.ms": "6000", "handoff.drainTimeout": "5s"})
    with member_stream("a", short) as a, member_stream("b", options(name)) as b:
        a.until_owning(1)
        b.until_owning(1)

        def removed_meanwhile() -> None:
            mine = a.ledger.confirmed_records()
            b.until_owning(2)
            a.commits.commit(mine)

        with pytest.raises((GenerationChanged, MemberUnknown)):
            a.member.call(removed_meanwhile)
        records = b.member.call(partial(b.commits.fetch, list(b.owned)))
        assert {record.stream for record in records.values() if isinstance(record, CommitRecord)} == {"b"}


def test_of_two_processes_with_the_same_instance_id_one_commits_nothing(topic: MakeTopic, options: MakeOptions) -> None:
    name = topic(partitions=2)
    static = options(name, **{"kafka.group.instance.id": "driver-1"})
    with member_stream("a", static) as first:
        first.until_owning(2)
        mine = first.ledger.confirmed_records()
        second = MemberStream("b", static).start()
        loser = first if first.options.group_protocol == "classic" else second
        until(lambda: loser.member.state is State.FAILED, "one of the two is fenced")
        with pytest.raises(MemberFenced):
            loser.member.call(partial(loser.commits.commit, mine))
        second.member.close()
