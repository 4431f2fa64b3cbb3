"""A group in memory, with the ledger of one of its members: what the tests of the ledger's rules begin with.

    group = GroupInMemory()
    group.acquire(ORDERS)                                # the group assigns the partition, and the ledger adopts it
    group.claim(0, {ORDERS: (OffsetRange(7, 9),)})       # Spark has plan 0 in its offset log
    assert group.record(ORDERS).open == ((7, 9),)        # what the group holds by now

Nothing happens by itself: no thread runs, and brokers answer when the test says so. tests/unit/group/test_ledger.py has examples.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from spark_groupsource.errors import BrokerUnavailable, TopicNotFound
from spark_groupsource.group.evidence import Answer, Question, find_out
from spark_groupsource.group.fenced_commits import FencedCommits
from spark_groupsource.group.ledger import Claims, Ledger
from spark_groupsource.group.survey import BrokersAnswer
from spark_groupsource.handoff.commit_record import CommitRecord, GroupCommit, mark_of
from spark_groupsource.handoff.rules import HOLD, HeldClaims, Stream
from spark_groupsource.observer import UNOBSERVED
from spark_groupsource.partition import Ranges, TopicPartition
from tests.support.held_questions import HeldQuestions
from tests.support.held_survey import HeldSurvey

LOG_START = 7
"""Where partitions without a commit begin."""


class GroupInMemory(FencedCommits):
    """What the group holds, and one member's ledger, which reads and writes it. It takes every commit, unless a test sets more.

    Partitions in `silent` have no leader. Topics in `deleted` do not exist, as brokers say, those in `refused` as the coordinator
    says.
    """

    def __init__(self, stream: Stream | None = None, *, held_claims: HeldClaims = HOLD, patience_s: float = 10.0) -> None:
        self.stream = stream or Stream("a" * 12)
        self.commits: dict[TopicPartition, GroupCommit] = {}
        """What the group holds for each partition. A test may put there what another member or client has written."""
        self.sent: list[Mapping[TopicPartition, CommitRecord]] = []
        """The commits that were sent, accepted or not."""
        self.silent: set[TopicPartition] = set()
        self.deleted: set[str] = set()
        self.refused: set[str] = set()
        self.coordinator_is_down = False
        self.commit_fails: Exception | None = None
        """What the coordinator answers to every commit."""
        self.question_fails: Exception | None = None
        """What the brokers answer about partitions that are to be adopted."""
        self.now = 0.0
        self._observer = UNOBSERVED
        self.survey = HeldSurvey(self._ask_brokers)
        self.ledger = Ledger(
            self.stream,
            self,
            survey=self.survey,
            reader=self,
            held_claims=held_claims,
            patience_s=patience_s,
            clock=lambda: self.now,
            wall_clock=lambda: 1_700_000_000,
        )
        self.evidence: HeldQuestions[Question, Answer] = HeldQuestions(partial(find_out, self))
        """The questions to the group about other streams."""
        self.ledger._confirmed_plans._questions = self.evidence

    # What tests do.

    def acquire(self, *partitions: TopicPartition) -> None:
        """Have the group assign the partitions, and the brokers answer for them."""
        self.ledger.acquired(frozenset(partitions))
        self.pass_time(0)

    def claim(self, plan: int, by_partition: Ranges) -> Claims:
        """Have the ledger propose the plan, and claim it as if Spark had it in its offset log now."""
        self.ledger.propose(by_partition)
        return self.claim_again(plan, by_partition)

    def claim_again(self, plan: int, by_partition: Ranges) -> Claims:
        """Have the ledger try once more to claim the plan."""
        return self.ledger.claim(Stream(self.stream.name, plan, plan - 1, by_partition))

    def pass_time(self, seconds: float) -> None:
        """Have the consumer's thread go round after a while, and the brokers answer all that it asks."""
        self.now += seconds
        self.ledger.idle()
        while self.survey.waiting:
            self.answer()

    def answer(self) -> None:
        """Answer the oldest question to the brokers, and have the consumer's thread take the answer."""
        assert self.survey.answer()
        self.ledger.idle()

    def answer_about_others(self) -> None:
        """Answer what the group's records show of other streams, and have the consumer's thread take the answer."""
        assert self.evidence.answer()
        self.pass_time(0)

    def record(self, partition: TopicPartition) -> CommitRecord:
        """Return the record that the group holds for a partition."""
        commit = self.commits[partition]
        assert isinstance(commit, CommitRecord)
        return commit

    # What the ledger asks: it takes this for its FencedCommits and its GroupReader.

    @property
    def member(self) -> str:
        return mark_of("me-1")

    def fetch(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, GroupCommit]:
        if self.coordinator_is_down:
            raise BrokerUnavailable("the coordinator is down")
        return {partition: self.commits.get(partition) for partition in partitions}

    def parts(self, records: Mapping[TopicPartition, CommitRecord]) -> Iterator[Mapping[TopicPartition, CommitRecord]]:
        if records:
            yield records

    def commit(self, records: Mapping[TopicPartition, CommitRecord]) -> None:
        self.sent.append(records)
        if self.commit_fails is not None:
            raise self.commit_fails
        self.commits |= {partition: record for partition, record in records.items() if partition.topic not in self.refused}
        if any(partition.topic in self.refused for partition in records):
            raise TopicNotFound("unknown topic")

    def subscribed(self) -> dict[TopicPartition, GroupCommit]:
        return dict(self.commits)

    def others(self) -> list[GroupCommit]:
        return []

    def members(self) -> frozenset[str]:
        return frozenset({self.member})

    def pause(self) -> None:
        pass

    def _ask_brokers(self, _: Stream, commits: Mapping[TopicPartition, GroupCommit]) -> BrokersAnswer:
        if self.question_fails is not None:
            raise self.question_fails
        unknown = {partition for partition in commits if partition in self.silent or partition.topic in self.deleted}
        known = {partition: commit for partition, commit in commits.items() if partition not in unknown}
        return BrokersAnswer(known, dict.fromkeys(known, LOG_START), dict.fromkeys(self.deleted), unknown, [])
