"""What a process keeps of its clients, for how long, and what it closes."""

from __future__ import annotations

import threading
from itertools import count

from spark_groupsource.brokers.client_pool import LIFE_S, MOST_KEPT, ClientPool, digest
from spark_groupsource.timeouts import KEPT_S


class Played:
    """A client that notes what becomes of it."""

    def __init__(self) -> None:
        self.closed = threading.Event()
        self.abandoned = False

    def close(self) -> None:
        self.closed.set()

    def abandon(self) -> None:
        self.abandoned = True


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def kept(pool: ClientPool, key: str) -> Played:
    client = pool.add(Played())
    pool.keep(key, client)
    return client


def test_a_client_that_is_kept_is_given_to_one_user_at_a_time() -> None:
    pool = ClientPool()
    client = kept(pool, "a")
    assert pool.take("b") is None
    assert pool.take("a") is client
    assert pool.take("a") is None
    pool.keep("a", client)
    assert pool.take("a") is client


def test_clients_that_nobody_will_need_are_closed_when_another_one_is_taken() -> None:
    pool = ClientPool()
    useless, other, asked_for = (kept(pool, key) for key in "abc")
    assert pool.take("c", useless=lambda client: client is useless) is asked_for
    assert useless.closed.wait(60)
    assert pool.take("a") is None
    assert pool.take("b") is other


def test_two_users_at_the_same_time_leave_one_client() -> None:
    pool = ClientPool()
    first, second = kept(pool, "a"), kept(pool, "a")
    assert first.closed.is_set()
    assert pool.take("a") is second


def test_a_client_that_its_user_keeps_twice_stays_open() -> None:
    """A signal may interrupt its user after the first time."""
    pool = ClientPool()
    client = kept(pool, "a")
    pool.keep("a", client)
    assert not client.closed.is_set()
    assert pool.take("a") is client
    assert pool.take("a") is None


def test_a_client_that_was_idle_for_too_long_is_closed() -> None:
    clock = Clock()
    pool = ClientPool(clock=clock)
    client = kept(pool, "a")
    clock.now = KEPT_S
    assert pool.take("another") is None
    assert client.closed.wait(60)
    assert pool.take("a") is None


def test_a_client_that_is_used_again_and_again_is_closed_when_it_is_old() -> None:
    clock = Clock()
    pool = ClientPool(clock=clock)
    client = kept(pool, "a")
    for step in count():
        clock.now = step * KEPT_S / 2
        if pool.take("a") is None:
            break
        pool.keep("a", client)
    assert clock.now == LIFE_S
    assert client.closed.wait(60)


def test_the_client_that_was_used_first_is_closed_when_there_are_too_many() -> None:
    pool = ClientPool()
    clients = [kept(pool, str(number)) for number in range(MOST_KEPT)]
    pool.keep("0", pool.take("0") or Played())
    kept(pool, "one more")
    assert clients[1].closed.wait(60)
    assert pool.take("0") is clients[0]


def test_all_are_closed_when_the_process_ends() -> None:
    pool = ClientPool()
    clients = [kept(pool, "a"), kept(pool, "b")]
    pool.close_kept()
    assert all(client.closed.is_set() for client in clients)


def test_a_forked_child_neither_uses_nor_closes_the_clients_of_its_parent() -> None:
    pool = ClientPool()
    idle, lent = kept(pool, "a"), pool.add(Played())
    pool.abandon()
    assert idle.abandoned
    assert lent.abandoned
    pool.keep("b", lent)
    pool.close(lent)
    assert pool.take("a") is None
    assert pool.take("b") is None
    assert not idle.closed.is_set()
    assert not lent.closed.is_set()


def test_a_key_holds_no_secret_and_depends_on_every_setting() -> None:
    first = digest({"sasl.password": "pa55word", "acks": "-1"})
    assert "pa55word" not in first
    assert first == digest({"acks": "-1", "sasl.password": "pa55word"})
    assert first != digest({"acks": "-1", "sasl.password": "another"})
