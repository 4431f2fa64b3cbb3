"""One token for all clients of a process: when the function is called, and what happens when it fails."""

from __future__ import annotations

import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import Queue

import pytest

from spark_groupsource.brokers.shared_token import CALL_S, FIRST_TOKEN_S, LONGEST_PAUSE_S, CallFailed, SharedToken, Token
from spark_groupsource.errors import AuthenticationFailed
from tests.support.waiting import until

SECRET = "tweedledum"  # noqa: S105
LIFE_S = 3600.0


class Provider:
    """An identity provider, its clock, and the token that clients share."""

    def __init__(self) -> None:
        self.now = 1_000_000_000.0
        self.calls = 0
        self.failure: Exception | None = None
        self.life_s = LIFE_S
        self.shared = SharedToken(self.fetch, clock=lambda: self.now, sleep=self.sleep)

    def fetch(self) -> Token:
        self.calls += 1
        if self.failure is not None:
            raise self.failure
        return Token(f"{SECRET}-{self.calls}", self.now + self.life_s)

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def asks_again_in(self, token: Token) -> float:
        """Return after how many seconds librdkafka asks again: after four fifths of what it takes for the token's life."""
        return 0.8 * (token.expiry - self.now)


@pytest.fixture
def provider() -> Provider:
    return Provider()


def test_clients_share_a_token_until_four_fifths_of_its_life_are_over(provider: Provider) -> None:
    tokens = {provider.shared.valid().value for _ in range(20)}
    provider.now += 0.79 * LIFE_S
    tokens |= {provider.shared.valid().value, provider.shared().value}
    assert (len(tokens), provider.calls) == (1, 1)
    provider.now += 0.02 * LIFE_S
    assert {provider.shared().value for _ in range(20)} == {f"{SECRET}-2"}
    assert provider.calls == 2


def test_a_renewal_that_fails_keeps_the_valid_token_and_is_tried_again_with_pauses(
    provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    provider.shared.valid()
    provider.now += 0.8 * LIFE_S
    provider.failure = CallFailed("it raised TooManyRequests.")
    pauses = []
    for _ in range(8):
        token = provider.shared()
        assert token.value == f"{SECRET}-1"
        assert provider.shared.valid().value == f"{SECRET}-1", "a new client gets it, too"
        pauses.append(provider.asks_again_in(token))
        provider.now += pauses[-1] + 0.001
    assert pauses == pytest.approx([1, 2, 4, 8, 16, LONGEST_PAUSE_S, LONGEST_PAUSE_S, LONGEST_PAUSE_S])
    assert provider.calls == 9
    assert "it raised TooManyRequests. The last token is valid for another 720 s." in caplog.text
    assert SECRET not in caplog.text
    provider.failure = None
    assert provider.shared().value == f"{SECRET}-10"


def test_a_token_that_has_expired_is_given_to_librdkafka_and_to_no_new_client(provider: Provider) -> None:
    """librdkafka takes no token that has expired, and would not ask again."""
    provider.shared.valid()
    provider.failure = CallFailed("it raised OSError.")
    provider.now += 10 * LIFE_S
    token = provider.shared()
    assert (token.value, token.expiry > provider.now) == (f"{SECRET}-1", True)
    with pytest.raises(AuthenticationFailed, match=r"it raised OSError\.$"):
        provider.shared.valid()


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_a_first_call_that_fails_is_repeated(provider: Provider, failing: int) -> None:
    fetch, failures = provider.shared._fetch, iter(range(failing))

    def flaky() -> Token:
        if next(failures, None) is not None:
            raise CallFailed("it raised TooManyRequests.")
        return fetch()

    provider.shared._fetch = flaky
    began = provider.now
    assert provider.shared.valid().value == f"{SECRET}-1"
    assert provider.now - began == pytest.approx(2**failing - 1, abs=0.1)


def test_a_function_that_always_fails_is_an_error_after_a_few_calls(provider: Provider) -> None:
    provider.failure = CallFailed("it raised TooManyRequests.")
    began = provider.now
    with pytest.raises(AuthenticationFailed, match=r"^it raised TooManyRequests\.$"):
        provider.shared.valid()
    assert provider.calls == 4
    assert provider.now - began < FIRST_TOKEN_S


def test_an_answer_that_is_no_token_is_an_error_at_once_and_no_reason_to_give_up_a_valid_one(provider: Provider) -> None:
    provider.failure = AuthenticationFailed("it has expired already.")
    with pytest.raises(AuthenticationFailed, match="it has expired already"):
        provider.shared.valid()
    assert provider.calls == 1
    provider.failure = None
    provider.now += LONGEST_PAUSE_S
    provider.shared.valid()
    provider.failure = AuthenticationFailed("it has expired already.")
    provider.now += 0.9 * LIFE_S
    assert provider.shared.valid().value == f"{SECRET}-2"


def test_a_token_that_brokers_refuse_is_replaced_for_the_next_client_but_not_again_and_again(provider: Provider) -> None:
    provider.shared.valid()
    provider.shared.refused()
    assert provider.shared.valid().value == f"{SECRET}-1", "it is new: another one would be refused as well"
    provider.now += 60
    provider.shared.refused()
    assert provider.shared.valid().value == f"{SECRET}-2"
    provider.shared.refused()
    assert provider.shared.valid().value == f"{SECRET}-2"


@pytest.fixture
def slow() -> Iterator[tuple[SharedToken, list[int], threading.Event]]:
    """A provider that answers when the test lets it."""
    calls: list[int] = []
    answer = threading.Event()

    def fetch() -> Token:
        calls.append(threading.get_ident())
        assert answer.wait(60)
        return Token(f"{SECRET}-{len(calls)}", time.time() + LIFE_S)

    yield SharedToken(fetch), calls, answer
    answer.set()


Slow = tuple[SharedToken, list[int], threading.Event]


def test_clients_that_are_made_at_the_same_time_wait_for_one_call(slow: Slow) -> None:
    shared, calls, answer = slow
    with ThreadPoolExecutor(21) as threads:
        asked = [threads.submit(shared.valid) for _ in range(21)]
        while not calls:
            time.sleep(0.01)
        answer.set()
        # Two threads that look at the same moment both call.
        assert {one.result(60).value for one in asked} <= {f"{SECRET}-{number + 1}" for number in range(len(calls))}
    assert len(calls) <= 2


def test_threads_use_the_valid_token_while_one_of_them_renews_it(slow: Slow) -> None:
    shared, calls, answer = slow
    answer.set()
    shared.valid()
    answer.clear()
    shared._call_at = 0.0
    with ThreadPoolExecutor(1) as threads:
        renewed = threads.submit(shared)
        while len(calls) < 2:
            time.sleep(0.01)
        assert {shared().value for _ in range(20)} == {f"{SECRET}-1"}
        answer.set()
        assert renewed.result(60).value == f"{SECRET}-2"
    assert len(calls) == 2


def test_a_signal_handler_that_needs_a_token_during_the_first_call_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_groupsource.brokers.shared_token.CALL_S", 0.3)
    calls: list[float] = []
    in_handler: list[Token] = []

    def fetch() -> Token:
        calls.append(time.monotonic())
        if len(calls) == 1:
            os.kill(os.getpid(), signal.SIGUSR1)
        return Token(f"{SECRET}-{len(calls)}", time.time() + LIFE_S)

    shared = SharedToken(fetch)
    before = signal.signal(signal.SIGUSR1, lambda *_: in_handler.append(shared.valid()))
    try:
        shared.valid()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert [token.value for token in in_handler] == [f"{SECRET}-2"]
    assert CALL_S <= 10


@pytest.mark.parametrize("refused", [False, True])
def test_a_pause_after_a_failure_is_not_shortened_by_brokers_that_refuse_the_token(provider: Provider, refused: bool) -> None:
    provider.shared.valid()
    provider.failure = CallFailed("it raised TooManyRequests.")
    provider.now += 2 * LIFE_S
    began, provider.calls = provider.now, 0
    while provider.now < began + 60:
        provider.shared()
        if refused:
            provider.shared.refused()
        provider.now += 0.1
    assert provider.calls == 3 + 11, "after 1, 2 and 4 s, and then each 5 s"


class Hanging:
    """A provider whose calls end one by one, when the test says how, and the token that clients share."""

    def __init__(self) -> None:
        self.now = 1_000_000_000.0
        self.answers: list[Queue[Token | CallFailed]] = []
        self.shared = SharedToken(self.fetch, clock=lambda: self.now, sleep=lambda _: time.sleep(0.01))

    def fetch(self) -> Token:
        self.answers.append(Queue())
        answer = self.answers[-1].get(timeout=60)
        if isinstance(answer, CallFailed):
            raise answer
        return answer

    def token(self, name: str) -> Token:
        return Token(name, self.now + LIFE_S)


@pytest.mark.parametrize("earlier", ["no token", "an expired token", "a valid token"])
@pytest.mark.parametrize("late", ["a failure", "a token"])
def test_a_call_that_hangs_keeps_no_other_thread_from_calling_and_ends_without_a_trace(earlier: str, late: str) -> None:
    hanging = Hanging()
    shared = hanging.shared
    with ThreadPoolExecutor(2) as threads:
        if earlier != "no token":
            asked = threads.submit(shared.valid)
            until(lambda: len(hanging.answers) == 1, "a call")
            hanging.answers.pop().put(hanging.token("old"))
            assert asked.result(60).value == "old"
            hanging.now += (0.9 if earlier == "a valid token" else 2) * LIFE_S
        first = threads.submit(shared.valid)
        until(lambda: len(hanging.answers) == 1, "the call that hangs")
        hanging.now += CALL_S + 1
        second = threads.submit(shared.valid)
        until(lambda: len(hanging.answers) == 2, "the second call")
        hanging.answers[1].put(hanging.token("new"))
        assert second.result(60).value == "new"
        hanging.now += 1
        hanging.answers[0].put(CallFailed("it raised TimeoutError.") if late == "a failure" else hanging.token("late"))
        assert first.result(60).value == "new"
    assert (shared.valid().value, shared().value, len(hanging.answers)) == ("new", "new", 2)
    assert 0.8 * (shared().expiry - hanging.now) == pytest.approx(0.8 * LIFE_S - 1), "the next call is due as before"


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_token_is_neither_shown_nor_pickled(provider: Provider, protocol: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    token = provider.shared.valid()
    assert SECRET not in f"{token!r} {token} {provider.shared._kept!r} {provider.shared!r}"
    pickled: Callable[..., bytes] = pickle.dumps
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickled([token], protocol)
    assert SECRET not in caplog.text


FORKING = """
import os, sys, time
from spark_groupsource.brokers.shared_token import SharedToken, Token

calls = []
def fetch():
    calls.append(os.getpid())
    return Token("token", time.time() + 3600)

shared = SharedToken(fetch)
shared.valid()
child = os.fork()
if child == 0:
    os._exit(0 if shared.valid().value == "token" and len(calls) == 1 else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_process_has_the_token_of_its_parent() -> None:
    # A child of the process that runs the tests would keep its pipe to pytest open, so that pytest would not notice its death.
    done = subprocess.run([sys.executable, "-c", FORKING], timeout=120, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
