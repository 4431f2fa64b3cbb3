"""How a task of the sink takes the steps of its transaction, and remembers rows that it may have to write again."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException

from spark_groupsource.patience import Deadline
from spark_groupsource.sink import producer as producers
from spark_groupsource.sink.pure_producer import PureProducer
from spark_groupsource.sink.writing import RememberedRows
from spark_groupsource.timeouts import TRANSACTION_S


@pytest.mark.parametrize("looks", range(1, 8))
def test_a_step_whose_outcome_stays_unknown_is_an_error_whenever_its_time_is_over(
    monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    """A commit that got no answer must not pass for one that succeeded: its rows would be lost."""
    seen = itertools.count()
    clock = partial(Deadline, clock=lambda: 0.0 if next(seen) < looks else 1000.0, sleep=lambda _: None)
    monkeypatch.setattr(producers, "Deadline", clock)
    producer = PureProducer({"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}, "t")

    def commit(_timeout_s: float) -> None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer", retriable=True))

    with pytest.raises(KafkaException, match="no answer"):
        producers.retried(producer, commit, TRANSACTION_S)
    producer.close()


def test_rows_are_given_again_from_the_first_one_until_there_are_too_many() -> None:
    batches = [pa.RecordBatch.from_pydict({"value": [text]}) for text in ("a", "b", "c")]
    rows = RememberedRows(iter(batches), 2 * batches[0].nbytes)
    begun = rows.from_the_first()
    assert [next(begun), next(begun)] == batches[:2]
    assert rows.whole
    again = rows.from_the_first()
    assert list(again) == batches
    assert not rows.whole, "of the third one nothing is remembered"


def test_rows_are_still_remembered_if_the_caller_needs_them_when_they_become_too_many() -> None:
    batches = [pa.RecordBatch.from_pydict({"value": [text]}) for text in ("a", "b", "c")]
    rows = RememberedRows(iter(batches), batches[0].nbytes)

    def refused() -> None:
        raise ValueError("fenced")

    with pytest.raises(ValueError, match="fenced"):
        list(rows.from_the_first(refused))
    assert rows.whole
    assert list(rows.from_the_first()) == batches


def test_rows_that_were_cut_off_are_not_given_again_as_if_they_were_all() -> None:
    def cut() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"value": ["a"]})
        raise ValueError("cut off")

    rows = RememberedRows(cut(), 1_000_000)
    with pytest.raises(ValueError, match="cut off"):
        list(rows.from_the_first())
    assert not rows.whole
