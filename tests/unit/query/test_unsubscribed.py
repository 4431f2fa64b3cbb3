"""What becomes of a logged plan's ranges of topics that the query no longer subscribes to."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from spark_groupsource.errors import BrokerUnavailable, GroupKafkaError, NotAuthorized, TopicNotFound
from spark_groupsource.handoff.commit_record import GroupCommit
from spark_groupsource.handoff.rules import Stream
from spark_groupsource.partition import OffsetRange, TopicPartition
from spark_groupsource.query.unsubscribed import without_refused

KEPT, LEFT, EMPTY = TopicPartition("kept", 0), TopicPartition("left", 0), TopicPartition("left", 1)
STREAM = Stream(
    "me", 4, 3, ranges={KEPT: (OffsetRange(0, 10),), LEFT: (OffsetRange(2, 5),), EMPTY: (OffsetRange(7, 7),)}, topics={}
)


def subscribed(topic: str) -> bool:
    return topic == "kept"


@pytest.mark.parametrize("error", [NotAuthorized("no DESCRIBE"), TopicNotFound("no such topic")])
def test_what_may_not_be_read_is_left_at_once(caplog: pytest.LogCaptureFixture, error: GroupKafkaError) -> None:
    asked: list[TopicPartition] = []

    def refuse(partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, GroupCommit]:
        asked.extend(partitions)
        raise error

    assert set(without_refused(STREAM, refuse, owned={KEPT}, subscribed=subscribed).ranges) == {KEPT, EMPTY}
    assert asked == [LEFT], "of what is subscribed or empty nothing is asked"
    assert (
        "leaves out left-0 [2, 5): the query no longer subscribes to the topic, and cannot read the group's records for it"
        in caplog.text
    )
    assert str(error) in caplog.text
    assert without_refused(STREAM, refuse, owned={KEPT, LEFT}, subscribed=subscribed) is STREAM


def test_what_can_be_read_stays_and_other_errors_are_not_hidden() -> None:
    assert without_refused(STREAM, dict.fromkeys, owned=(), subscribed=subscribed) is STREAM

    def fail(_: Collection[TopicPartition]) -> Mapping[TopicPartition, GroupCommit]:
        raise BrokerUnavailable("no answer")

    with pytest.raises(BrokerUnavailable):
        without_refused(STREAM, fail, owned=(), subscribed=subscribed)
