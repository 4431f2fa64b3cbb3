"""Mistakes that somebody could make in the sink's code. The simulation must notice each."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest.mock import patch

from confluent_kafka import KafkaException

from spark_groupsource.errors import WriterFenced
from spark_groupsource.patience import Deadline
from spark_groupsource.sink import finishing, rules, writing
from spark_groupsource.sink.token import BatchToken, Token
from spark_groupsource.sink.tokens import Tokens
from spark_groupsource.sink.writing import Report
from spark_groupsource.timeouts import TRANSACTION_S
from tests.simulation.sink.broker import Broker
from tests.simulation.sink.processes import TOPIC, FakeProducer, FakeTokens
from tests.simulation.sink.steps import clock


class Fault(NamedTuple):
    """A mistake."""

    name: str
    seeded: AbstractContextManager[object]
    """While it lasts, the code has the mistake."""
    seed: int = 0
    """A history that shows it today. The search begins there, and looks at all the others if it shows nothing any more."""
    setting: Mapping[str, Any] = MappingProxyType({"expiry": True})
    """What histories to search."""


write, write_once, take_the_id = writing._Writer.write, writing.write_once, FakeProducer.init_transactions
"""As they are without a mistake."""


def read_before_the_id_is_taken(self: Any, tokens: Any, topics: Any, rows: Any) -> Report:
    token = tokens.of_task(self._attempt.task, topics)
    with patch.object(tokens, "of_task", lambda *_: token):
        return write(self, tokens, topics, rows)


def an_id_for_each_try(self: FakeProducer, timeout_s: float) -> None:
    self.name += "x"
    take_the_id(self, timeout_s)


def token_after_the_rows(self: Any, rows: Any) -> Report:
    producer = self._producer
    producer.begin_transaction()
    for each in rows:
        producer.write(each)
    self._retried(producer.commit_transaction)
    mark = Token(self._attempt.batch, producer.written, self._attempt.run)
    producer.begin_transaction()
    self._retried(lambda left: producer.send_offset(self._id, TOPIC, mark.offset, mark.metadata(), left))
    self._retried(producer.commit_transaction)
    return Report(producer.written.rows)


def lost_answer_is_a_yes(self: Any, step: Any, _most_s: float = 0.0) -> None:
    try:
        step(1.0)
    except KafkaException as failed:
        if not failed.args[0].retriable():
            raise


def time_over_is_a_yes(self: Any, step: Any, _most_s: float = 0.0) -> None:
    deadline = Deadline(TRANSACTION_S, clock=clock)
    while not deadline.over:
        try:
            step(1.0)
        except KafkaException as failed:
            if not self._passes(failed):
                raise
        else:
            return


def fenced_is_written(*given: Any) -> Report:
    try:
        return write_once(*given)
    except WriterFenced:
        return Report()


def up_to_the_first_gap(self: FakeTokens, first: int, topics: Any) -> dict[int, Token]:
    found = Tokens.of_tasks_from(self, first, topics)
    return {number: token for number, token in found.items() if all(one in found for one in range(first, number))}


def every_batch_is_accepted(task: str, number: int, batch: int, mark: Any, driver: Any, _: Any) -> Any:
    return rules.written_before(task, number, batch, mark, driver, batch)


FAULTS = (
    Fault("the token is ignored", patch.object(writing, "written_before", lambda *_: None)),
    Fault("the token is read before the id is taken", patch.object(writing._Writer, "write", read_before_the_id_is_taken)),
    Fault("each try has an id of its own", patch.object(FakeProducer, "init_transactions", an_id_for_each_try)),
    Fault("offsets of open transactions are not waited for", patch.object(Broker, "is_unstable", lambda *_: False), seed=67),
    Fault("the token is committed after the rows", patch.object(writing._Writer, "_written", token_after_the_rows)),
    Fault("an answer that is lost is taken for a yes", patch.object(writing._Writer, "_retried", lost_answer_is_a_yes)),
    Fault("time that is over is taken for a yes", patch.object(writing._Writer, "_retried", time_over_is_a_yes)),
    Fault("fenced is taken for written", patch.object(writing, "write_once", fenced_is_written)),
    Fault("the number of the micro-batch before", patch.object(Token, "offset", property(lambda self: max(self.batch, 1)))),
    Fault(
        "the driver's token is of the next micro-batch",
        patch.object(BatchToken, "offset", property(lambda self: self.batch + 2)),
    ),
    Fault(
        "nobody notices that offsets have expired",
        patch.object(writing, "written_before", every_batch_is_accepted),
        seed=155,
    ),
    Fault(
        "brokers pass over an open transaction on a new topic",
        patch.object(FakeTokens, "of_task", lambda self, task, *_: Tokens.of_task(self, task)),
        seed=574,
        setting={"name_topics": True},
    ),
    Fault(
        "nobody asks for tasks without rows",
        patch.object(finishing, "check_batch", lambda *_: None),
        setting={"batches": 2, "uneven": True},
    ),
    Fault(
        "nobody asks for tasks behind one that has not written",
        patch.object(FakeTokens, "of_tasks_from", up_to_the_first_gap),
        setting={"tasks": 3, "batches": 2, "fewer": True},
    ),
)
