"""Mistakes that could be made in the sink's code, each of which the simulation must detect."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest.mock import patch

from confluent_kafka import KafkaException

from spark_groupsource.brokers.client_pool import ClientPool
from spark_groupsource.errors import WriterFenced
from spark_groupsource.patience import Deadline
from spark_groupsource.sink import finishing, rules, writing
from spark_groupsource.sink.names import Names
from spark_groupsource.sink.producer import retried
from spark_groupsource.sink.rules import Choice, Plan
from spark_groupsource.sink.token import BatchToken, Token, Written
from spark_groupsource.sink.token_store import TokenStore
from spark_groupsource.sink.writing import Report
from spark_groupsource.spark import worker
from spark_groupsource.timeouts import TRANSACTION_S
from tests.simulation.sink.broker import Broker
from tests.simulation.sink.processes import TOPIC, FakeProducer, FakeTokenStore
from tests.simulation.sink.steps import clock
from tests.simulation.sink.world import renamed_and_back, run


class Fault(NamedTuple):
    """A mistake."""

    name: str
    seeded: Callable[[], AbstractContextManager[object]]
    """While it lasts, the code has the mistake."""
    setting: Mapping[str, Any] = MappingProxyType({"expiry": True, "steps": 300})
    """What histories to search."""
    seed: int = 0
    """A history that shows it today. The search begins there, and looks at all the others if it shows nothing any more."""
    history: Callable[..., str | None] = run
    """Plays one. It takes a seed, and for `run` what to search."""


write, write_once, take_the_id = writing._TaskWriter.write, writing.write_once, FakeProducer.init_transactions
plan_task, check_batch = rules.plan_task, rules.check_batch
"""As they are without a mistake."""


def replaced(place: Any, name: str, by: Any) -> Callable[[], AbstractContextManager[object]]:
    return lambda: patch.object(place, name, by)


def read_before_the_id_is_taken(self: Any) -> Report:
    token = self._tokens.read_task(self._attempt.task, self._rows.topics)
    with patch.object(self._tokens, "read_task", lambda *_: token):
        return write(self)


def an_id_for_each_try(self: FakeProducer, timeout_s: float) -> None:
    self.name += "x"
    take_the_id(self, timeout_s)


def token_after_the_rows(self: Any, rows: Any, _before: Written | None) -> Report:
    producer = self._producer
    producer.begin_transaction()
    for each in rows:
        producer.write(each)
    retried(producer, producer.commit_transaction, TRANSACTION_S)
    mark = Token(self._attempt.query, self._attempt.batch, producer.written, self._attempt.run)
    producer.begin_transaction()
    retried(producer, lambda left: producer.send_offset(self._id, TOPIC, mark.offset, mark.metadata(), left), TRANSACTION_S)
    retried(producer, producer.commit_transaction, TRANSACTION_S)
    return Report(producer.written.rows)


def lost_answer_is_a_yes(_producer: Any, step: Any, *_seconds: float) -> None:
    try:
        step(1.0)
    except KafkaException as failed:
        if not failed.args[0].retriable():
            raise


def time_over_is_a_yes(_producer: Any, step: Any, *_seconds: float) -> None:
    deadline = Deadline(TRANSACTION_S, clock=clock)
    while not deadline.over:
        try:
            step(1.0)
        except KafkaException as failed:
            if not failed.args[0].retriable():
                raise
        else:
            return


def fenced_is_written(*given: Any) -> Report:
    try:
        return write_once(*given)
    except WriterFenced:
        return Report()


def every_batch_is_chosen(task: str, number: int, batch: int, token: Any, driver: Any, _choice: Any, _elsewhere: Any) -> Plan:
    if token is not None and token.batch == batch:
        return Plan(write=False, before=token.written)
    return Plan(write=True)


def always(choice: str) -> Callable[[], AbstractContextManager[object]]:
    """Have the tasks do the opposite of what the user chose."""

    def plan(task: str, number: int, batch: int, token: Any, driver: Any, chosen: Choice, elsewhere: Any) -> Plan:
        if chosen.covers(batch):
            chosen = Choice(rewrite=batch) if choice == "rewrite" else Choice(skip=batch)
        return plan_task(task, number, batch, token, driver, chosen, elsewhere)

    return replaced(writing, "plan_task", plan)


@contextmanager
def without_the_query_in_names() -> Iterator[None]:
    with ExitStack() as patches:
        patches.enter_context(patch.object(Names, "driver", property(lambda self: self.prefix)))
        # A token's query is not checked either.
        patches.enter_context(patch.object(Token, "query", property(lambda _: "any")))
        patches.enter_context(patch("spark_groupsource.sink.token._fields", _fields_of_any_query))
        yield


def _fields_of_any_query(commit: Any, group: str, query: str, names: set[str]) -> dict[str, Any]:
    import json

    fields: dict[str, Any] = json.loads(commit.metadata)
    return fields


def may_continue_whatever_the_run(last: Token | None, batch: int, _run: str, choice: Choice) -> bool:
    return last is not None and last.batch == batch - 1 and not choice.covers(batch)


@contextmanager
def one_pool_for_all_queries() -> Iterator[None]:
    with ExitStack() as patches:
        patches.enter_context(patch.object(writing, "digest", lambda _: "producer"))
        patches.enter_context(patch.object(writing, "may_continue", may_continue_whatever_the_run))
        yield


KEPT = MappingProxyType({"batches": 6, "rows": 1, "steps": 300, "trouble": 0.1})
"""Histories in which workers often have a producer of the task."""

RENAMED = MappingProxyType({"renames": True, "cancels": True, "batches": 4, "steps": 500, "trouble": 0.12})

FAULTS = (
    Fault("the token is ignored", replaced(writing, "plan_task", lambda *_: Plan(write=True))),
    Fault(
        "the token is read before the id is taken", replaced(writing._TaskWriter, "write", read_before_the_id_is_taken), seed=69
    ),
    Fault("each try has an id of its own", replaced(FakeProducer, "init_transactions", an_id_for_each_try)),
    Fault("offsets of open transactions are not waited for", replaced(Broker, "is_unstable", lambda *_: False), seed=34),
    Fault("the token is committed after the rows", replaced(writing._TaskWriter, "_write_transaction", token_after_the_rows)),
    Fault("an answer that is lost is taken for a yes", replaced(writing, "retried", lost_answer_is_a_yes), seed=39),
    Fault("time that is over is taken for a yes", replaced(writing, "retried", time_over_is_a_yes), seed=22),
    Fault("fenced is taken for written", replaced(writing, "write_once", fenced_is_written)),
    Fault("the number of the micro-batch before", replaced(Token, "offset", property(lambda self: max(self.batch, 1)))),
    Fault("the driver's token is of the next micro-batch", replaced(BatchToken, "offset", property(lambda self: self.batch + 2))),
    Fault("nobody notices that offsets have expired", replaced(writing, "plan_task", every_batch_is_chosen)),
    Fault(
        "brokers pass over an open transaction on a new topic",
        replaced(FakeTokenStore, "read_task", lambda self, task, *_: TokenStore.read_task(self, task)),
        {"name_topics": True},
        seed=848,
    ),
    Fault(
        "nobody asks for tasks without rows",
        replaced(finishing, "check_batch", lambda *_: None),
        {"batches": 2, "uneven": True},
    ),
    Fault(
        "the end of an input that was cut off is taken for its end",
        replaced(worker, "whole", lambda rows, _ended: rows),
        {"cancels": True},
    ),
    Fault("names have no query", without_the_query_in_names, {"queries": 2, "batches": 1}),
    Fault(
        "tasks leave no mark",
        replaced(FakeTokenStore, "commit_mark", lambda *_: None),
        {"tasks": 3, "batches": 2, "fewer": True},
    ),
    Fault(
        "tasks with a high number do not mark their reach",
        replaced(FakeTokenStore, "read_reach", lambda _: 2),
        {"tasks": 3, "batches": 2, "fewer": True},
        seed=50,
    ),
    Fault(
        "the driver ends no transaction of an earlier try",
        replaced(finishing, "end_transaction", lambda *_: None),
        {"tasks": 3, "batches": 2, "fewer": True},
        seed=96,
    ),
    Fault(
        "nobody looks for what is elsewhere",
        replaced(FakeTokenStore, "list_elsewhere", lambda *_: []),
        RENAMED,
    ),
    Fault(
        "the driver does not look again",
        replaced(finishing, "check_elsewhere_again", lambda *_: None),
        RENAMED,
    ),
    Fault(
        "a kept producer writes whatever it has committed last",
        replaced(writing, "may_continue", lambda last, *_: last is not None),
        KEPT,
    ),
    Fault(
        "the token of a kept producer is believed in a later run",
        replaced(writing, "may_continue", may_continue_whatever_the_run),
        history=renamed_and_back,
    ),
    Fault("two queries share the producers that they keep", one_pool_for_all_queries, {**KEPT, "queries": 2}),
    Fault("a forked worker uses its parent's producers", replaced(ClientPool, "abandon", lambda _: None), KEPT, seed=40),
    Fault("what is to be skipped is written", always("rewrite")),
    Fault("what is to be written again is skipped", always("skip"), RENAMED, seed=34),
)
