"""Steps that other threads queue for the consumer's thread: in their order, each with its outcome, refused at the end."""

from __future__ import annotations

import threading

from spark_groupsource.group.threads import Commands


def fail() -> None:
    raise ValueError("wrong")


def test_queued_steps_run_in_their_order_on_the_thread_that_serves() -> None:
    commands = Commands()
    seen: list[tuple[int, int]] = []
    for number in range(3):
        commands.put(lambda number=number: seen.append((number, threading.get_ident())))  # type: ignore[misc]
    serving = threading.Thread(target=lambda: commands.serve(0))
    serving.start()
    serving.join()
    assert seen == [(number, serving.ident) for number in range(3)]


def test_each_step_gets_its_result_or_its_own_error() -> None:
    commands = Commands()
    good, bad, last = commands.put(lambda: 7), commands.put(fail), commands.put(lambda: 8)
    commands.serve(0)
    assert good.get(timeout=0) == (True, 7)
    succeeded, error = bad.get(timeout=0)
    assert not succeeded
    assert isinstance(error, ValueError)
    assert last.get(timeout=0) == (True, 8)


def test_serving_waits_for_the_first_step_and_ends_when_it_is_woken() -> None:
    commands = Commands()
    commands.serve(0.01)
    woken = threading.Timer(0.1, commands.wake)
    woken.start()
    commands.serve(60)
    woken.join()


def test_steps_that_are_left_at_the_end_are_refused() -> None:
    commands = Commands()
    left = commands.put(lambda: 7)
    commands.wake()
    closed = RuntimeError("closed")
    commands.refuse(closed)
    assert left.get(timeout=0) == (False, closed)
