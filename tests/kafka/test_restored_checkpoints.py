"""A checkpoint that was put back from an older copy, while the group has gone on."""

from __future__ import annotations

import pytest

from spark_groupsource.errors import CheckpointBehindGroup
from spark_groupsource.group.ledger import Ledger
from tests.conftest import MakeTopic, Produce
from tests.kafka.conftest import MakeQuery, RecordOf


def test_it_is_refused_although_other_streams_own_every_partition_since(
    topic: MakeTopic, produce: Produce, query: MakeQuery, record_of: RecordOf
) -> None:
    name = topic()
    a, b, c = query(name), query(name), query(name)
    for _ in range(3):
        produce(name, [(None, b"x")] * 10)
        older = a.done
        a.run_batch()
    a.joined.do(Ledger.confirm)
    a.cycle.stop()
    produce(name, [(None, b"y")] * 10)
    b.run_batch()
    b.cycle.stop()
    c.until_planning(1)
    record = record_of(name, 0)
    assert record.past == ((a.done.stream, 2), (b.done.stream, 0))
    a.done = a.logged = older
    a.restart()
    with pytest.raises(CheckpointBehindGroup, match=rf"the group knows plan 2 of stream {a.done.stream}.* checkpoint is 1"):
        a.plan()
    c.cycle.stop()
    produce(name, [(None, b"z")] * 10)
    with pytest.raises(CheckpointBehindGroup):
        a.plan()
