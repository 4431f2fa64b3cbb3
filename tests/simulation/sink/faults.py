"""Mistakes that somebody could make in the sink's code. The simulation must notice each."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest.mock import patch

from confluent_kafka import KafkaException

from spark_groupsource.errors import WriterFenced
from spark_groupsource.patience import Deadline
from spark_groupsource.sink import finishing, rules, token, writing
from spark_groupsource.sink.token import Token
from spark_groupsource.sink.writing import Report
from spark_groupsource.timeouts import TRANSACTION_S
from tests.simulation.sink.processes import TOPIC, FakeOffsets, FakeProducer, FakeTokens
from tests.simulation.sink.steps import clock


class Fault(NamedTuple):
    """A mistake."""

    name: str
    seeded: Any
    """Returns a context in which the code has the mistake."""
    seed: int = 0
    """A history that shows it today. The search begins there, and looks at all the others if it shows nothing any more."""
    setting: Mapping[str, Any] = MappingProxyType({"expiry": True})
    """What histories to search."""


def _token_is_ignored() -> AbstractContextManager[object]:
    return patch.object(writing, "written_before", lambda *_: None)


def _read_before_the_id_is_taken() -> AbstractContextManager[object]:
    write = writing._Writer.write

    def early(self: Any, tokens: Any, topics: Any, rows: Any) -> Report:
        token = tokens.of_task(self._attempt.task, topics)
        with patch.object(tokens, "of_task", lambda *_: token):
            return write(self, tokens, topics, rows)

    return patch.object(writing._Writer, "write", early)


def _an_id_for_each_try() -> AbstractContextManager[object]:
    take = FakeProducer.init_transactions

    def another(self: FakeProducer, timeout_s: float) -> None:
        self.name += "x"
        take(self, timeout_s)

    return patch.object(FakeProducer, "init_transactions", another)


def _offsets_of_open_transactions_are_not_waited_for() -> AbstractContextManager[object]:
    return patch.object(FakeOffsets, "_waits", lambda _: False)


def _token_after_the_rows() -> AbstractContextManager[object]:
    def written(self: Any, rows: Any) -> Report:
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

    return patch.object(writing._Writer, "_written", written)


def _an_answer_that_is_lost_is_taken_for_a_yes() -> AbstractContextManager[object]:
    def hopeful(self: Any, step: Any, _most_s: float = 0.0) -> None:
        try:
            step(1.0)
        except KafkaException as failed:
            if not failed.args[0].retriable():
                raise

    return patch.object(writing._Writer, "_retried", hopeful)


def _time_that_is_over_is_taken_for_a_yes() -> AbstractContextManager[object]:
    def impatient(self: Any, step: Any, _most_s: float = 0.0) -> None:
        deadline = Deadline(TRANSACTION_S, clock=clock)
        while not deadline.over:
            try:
                step(1.0)
            except KafkaException as failed:
                if not self._passes(failed):
                    raise
            else:
                return

    return patch.object(writing._Writer, "_retried", impatient)


def _fenced_is_taken_for_written() -> AbstractContextManager[object]:
    write = writing.write_once

    def lenient(*given: Any) -> Report:
        try:
            return write(*given)
        except WriterFenced:
            return Report()

    return patch.object(writing, "write_once", lenient)


def _expiry_is_not_noticed() -> AbstractContextManager[object]:
    decide = rules.written_before

    def careless(task: str, number: int, batch: int, mark: Any, driver: Any, accepted: int | None) -> Any:
        return decide(task, number, batch, mark, driver, batch)

    return patch.object(writing, "written_before", careless)


def _the_number_of_the_batch_before() -> AbstractContextManager[object]:
    return patch.object(token.Token, "offset", property(lambda self: max(self.batch, 1)))


def _the_drivers_token_is_of_the_next_batch() -> AbstractContextManager[object]:
    return patch.object(token.BatchToken, "offset", property(lambda self: self.batch + 2))


def _brokers_pass_over_an_open_transaction_on_a_new_topic() -> AbstractContextManager[object]:
    of_task = FakeTokens.of_task

    def of_all_topics(tokens: FakeTokens, task: int, topics: Collection[str] = ()) -> Token | None:
        return of_task(tokens, task)

    return patch.object(FakeTokens, "of_task", of_all_topics)


def _nobody_asks_for_tasks_without_rows() -> AbstractContextManager[object]:
    return patch.object(finishing, "check_batch", lambda *_: None)


def _nobody_asks_for_tasks_behind_one_that_has_not_written() -> AbstractContextManager[object]:
    everything = FakeTokens.of_tasks_from

    def up_to_the_first_gap(tokens: FakeTokens, first: int, topics: Collection[str]) -> dict[int, Token]:
        found = everything(tokens, first, topics)
        return {number: token for number, token in found.items() if all(one in found for one in range(first, number))}

    return patch.object(FakeTokens, "of_tasks_from", up_to_the_first_gap)


UNEVEN = {"batches": 2, "uneven": True}
FEWER = {"tasks": 3, "batches": 2, "fewer": True}

FAULTS = (
    Fault("the token is ignored", _token_is_ignored),
    Fault("the token is read before the id is taken", _read_before_the_id_is_taken),
    Fault("each try has an id of its own", _an_id_for_each_try),
    Fault("offsets of open transactions are not waited for", _offsets_of_open_transactions_are_not_waited_for, seed=67),
    Fault("the token is committed after the rows", _token_after_the_rows),
    Fault("an answer that is lost is taken for a yes", _an_answer_that_is_lost_is_taken_for_a_yes),
    Fault("time that is over is taken for a yes", _time_that_is_over_is_taken_for_a_yes),
    Fault("fenced is taken for written", _fenced_is_taken_for_written),
    Fault("the number of the micro-batch before", _the_number_of_the_batch_before),
    Fault("the driver's token is of the next micro-batch", _the_drivers_token_is_of_the_next_batch),
    Fault("nobody notices that offsets have expired", _expiry_is_not_noticed, seed=155),
    Fault(
        "brokers pass over an open transaction on a new topic",
        _brokers_pass_over_an_open_transaction_on_a_new_topic,
        seed=574,
        setting={"name_topics": True},
    ),
    Fault("nobody asks for tasks without rows", _nobody_asks_for_tasks_without_rows, setting=UNEVEN),
    Fault(
        "nobody asks for tasks behind one that has not written",
        _nobody_asks_for_tasks_behind_one_that_has_not_written,
        setting=FEWER,
    ),
)
