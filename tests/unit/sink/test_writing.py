"""How a task of the sink takes the steps of its transaction."""

from __future__ import annotations

import itertools
from functools import partial

import pytest
from confluent_kafka import KafkaError, KafkaException

from spark_groupsource.options.sink_model import SinkOptions
from spark_groupsource.patience import Deadline
from spark_groupsource.sink import writing
from spark_groupsource.sink.pure_producer import PureProducer


@pytest.mark.parametrize("looks", range(1, 8))
def test_a_step_whose_outcome_stays_unknown_is_an_error_whenever_its_time_is_over(
    monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    """A commit that got no answer must not pass for one that succeeded: its rows would be lost."""
    seen = itertools.count()
    clock = partial(Deadline, clock=lambda: 0.0 if next(seen) < looks else 1000.0, sleep=lambda _: None)
    monkeypatch.setattr(writing, "Deadline", clock)
    settings = SinkOptions.parse({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}, "stream").sink_settings("stream")
    producer = PureProducer({"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}, "t")
    writer = writing._Writer(settings, settings.producer, writing.Attempt(0, 0, "", "q"), "q-0", producer)

    def commit(_timeout_s: float) -> None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer", retriable=True))

    with pytest.raises(KafkaException, match="no answer"):
        writer._retried(commit)
    producer.close()
