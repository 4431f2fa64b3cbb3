"""A group whose commits were copied from another cluster: what was claimed there is read again, and nothing is skipped."""

from __future__ import annotations

import random

import pytest

from spark_groupsource.handoff.commit_record import CommitRecord, Foreign, OpenRange, OwedRange, read_commit
from spark_groupsource.handoff.rules import Stream, adopt, claim
from spark_groupsource.partition import OffsetRange, TopicPartition

WHERE = TopicPartition("orders", 0)
THERE, HERE = "MkU3OEVBNTcwNTJENDM2Qg", "4L6g3nShT-eMCtK--X86sw"


def drawn(seed: int) -> CommitRecord:
    """Return a record of the other cluster with up to eight ranges, each open, owed or confirmed."""
    chance = random.Random(seed)
    bounds = sorted(chance.sample(range(1, 1000), 16))
    held = [(bounds[at], bounds[at + 1], chance.choice(("open", "owed", "neither"))) for at in range(0, 16, 2)]
    return CommitRecord(
        stream="me",
        logged=4,
        done=3,
        next=chance.randrange(bounds[-1], 1001),
        open=tuple(OpenRange(start, end) for start, end, kind in held if kind == "open"),
        owed=tuple(OwedRange(chance.choice("ab"), 3, start, end, 1) for start, end, kind in held if kind == "owed"),
        claimed_at=1 if any(kind == "open" for _, _, kind in held) else None,
        topic_id="t" * 22,
        cluster_id=THERE,
    )


@pytest.mark.parametrize("seed", range(200))
def test_its_partitions_are_read_on_at_the_first_offset_that_is_not_confirmed(seed: int) -> None:
    record = drawn(seed)
    commit = read_commit(record.offset, record.metadata(), HERE)
    assert commit == Foreign(record.offset, THERE)
    # Neither the plans nor the topic id of the other cluster count, of the stream's own record either.
    stream = Stream("me", 1, 1, topics={"orders": "o" * 22})
    adopted = adopt(stream, WHERE, commit, starting_offset=0, done={"a": 9, "b": 9}, topic_id="h" * 22, cluster_id=HERE)
    first_unconfirmed = min([record.next, *(held.start for held in record.unconfirmed)])
    assert (adopted.next, adopted.offset, adopted.open, adopted.owed) == (first_unconfirmed, first_unconfirmed, (), ())
    assert (adopted.stream, adopted.topic_id, adopted.cluster_id) == ("me", "h" * 22, HERE)
    assert read_commit(adopted.offset, adopted.metadata(), HERE) == adopted


@pytest.mark.parametrize("seed", range(50))
def test_a_plan_of_the_other_cluster_claims_nothing_of_it(seed: int) -> None:
    record = drawn(seed)
    commit = read_commit(record.offset, record.metadata(), HERE)
    stream = Stream("me", 4, 3, {WHERE: tuple(OffsetRange(*held) for held in record.open) or (OffsetRange(1, 2),)})
    verdict = claim(stream, WHERE, commit, owned=True, held_since_planned=True, now=1)
    assert (verdict.read, verdict.write, verdict.waits) == ((), None, False)
