"""Questions whose answers may take long: nobody waits for them, and an error is an answer as well."""

from __future__ import annotations

import threading

from spark_groupsource.group.threads import Questions
from tests.support.waiting import until


def test_a_question_is_asked_on_another_thread_and_its_answer_is_taken_on_this_one() -> None:
    go_on = threading.Event()
    asked_on: list[threading.Thread] = []

    def find_out(question: int) -> int:
        asked_on.append(threading.current_thread())
        assert go_on.wait(90)
        return 10 * question

    questions = Questions(find_out, thread="asking")
    questions.ask(4)
    assert questions.take() is None
    go_on.set()
    until(lambda: not questions._answers.empty(), "an answer")
    assert questions.take() == (4, 40)
    assert questions.take() is None
    assert [thread.name for thread in asked_on] == ["asking"]


def test_an_error_comes_with_the_question_that_it_is_about() -> None:
    error = RuntimeError("no")

    def find_out(_: str) -> str:
        raise error

    questions = Questions(find_out, thread="asking")
    questions.ask("who leads?")
    until(lambda: not questions._answers.empty(), "an answer")
    assert questions.take() == ("who leads?", error)
