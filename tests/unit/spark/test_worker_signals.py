"""A worker that is asked to end in the middle of a task ends what it has open first."""

from __future__ import annotations

import signal
import threading

import pytest

from spark_groupsource.spark.worker_signals import ended_by_signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_block_as_an_exception_and_the_next_one_does_not_interrupt_that(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    ended: list[str] = []

    @ended_by_signals()
    def task() -> None:
        try:
            signal.raise_signal(number)
        finally:
            signal.raise_signal(number)
            ended.append("the transaction")

    with pytest.raises(SystemExit) as raised:
        task()
    assert raised.value.code == 128 + number
    assert ended == ["the transaction"]
    assert signal.getsignal(number) is before


def test_nothing_is_installed_on_another_thread() -> None:
    seen: list[object] = []

    def task() -> None:
        with ended_by_signals():
            seen.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=task)
    thread.start()
    thread.join()
    assert seen == [before]
