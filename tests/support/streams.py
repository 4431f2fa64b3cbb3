"""A stream without Spark: a real member of a real group, with the ledger that a query's driver keeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from spark_groupsource.brokers.topics import Topics
from spark_groupsource.group.fenced_commits import FencedCommits
from spark_groupsource.group.ledger import Ledger
from spark_groupsource.group.member import Member
from spark_groupsource.group.survey import Survey, ask_brokers
from spark_groupsource.handoff.rules import Stream
from spark_groupsource.options.model import Options
from spark_groupsource.partition import TopicPartition
from tests.support.group_reader import NothingHeld
from tests.support.waiting import until


class MemberStream:
    """One member of a group that adopts what it is given, from the earliest offset on."""

    def __init__(self, name: str, options: Mapping[str, str], callbacks: Mapping[str, Any] | None = None) -> None:
        self.options = Options.parse(options)
        topics = Topics(self.options.client_settings(), self.options, read_committed=False, patience_s=60)
        settings = {**self.options.member_settings(), **(callbacks or {})}
        self.member = Member(settings, self.options.subscription(), drain_timeout_s=self.options.drain_timeout_ms / 1000)
        self.commits = FencedCommits(self.member.consumer, self.options.group_id)
        self.ledger = Ledger(
            Stream(name),
            self.commits,
            survey=Survey(partial(ask_brokers, starting_offsets=topics.starts, topic_ids=topics.ids, log_starts=topics.starts)),
            reader=NothingHeld(),
        )

    @property
    def owned(self) -> set[TopicPartition]:
        """What this member has adopted and may plan."""
        return set(self.ledger.positions)

    def start(self) -> MemberStream:
        self.member.start(self.ledger)
        return self

    def until_owning(self, count: int) -> float:
        """Wait until the member owns exactly `count` partitions, and return the seconds it took."""
        return until(lambda: len(self.owned) == count, f"{count} partitions; owned: {sorted(self.owned)}")


@contextmanager
def member_stream(name: str, options: Mapping[str, str]) -> Iterator[MemberStream]:
    """Join a group as a stream, and leave it at the end."""
    stream = MemberStream(name, options).start()
    try:
        assert stream.member.wait_joined(90)
        yield stream
    finally:
        stream.member.close()
