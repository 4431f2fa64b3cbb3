"""What the steps know of a query that reads."""

from __future__ import annotations

from spark_groupsource.brokers.group_view import PartitionView
from spark_groupsource.handoff.commit_record import Foreign
from tests.support.check_sources import ONE, ZERO, group, source


def test_commits_are_those_of_the_group_that_was_described() -> None:
    described = group(
        "classic", "range", partitions=(PartitionView(ZERO, None, Foreign(7), 9), PartitionView(ONE, None, None, 9))
    )
    assert source(described).commits == {ZERO: Foreign(7), ONE: None}
    assert source().commits == {}, "before that, and without a group"


def test_each_client_asks_for_what_the_query_may_read() -> None:
    """Nothing is asked yet, so no broker is needed."""
    known = source(kafka_isolation_level="read_committed")
    assert known.topics is known.topics, "one client serves all steps"
    assert known.topics_as(read_committed=False) is not known.topics
    assert known.kafka is known.options.kafka
