"""The ports of a broker's listeners differ, also those that are chosen before anything listens."""

from __future__ import annotations

import pytest

from devtools.broker import ports
from devtools.broker.ports import free_ports


def test_ports_that_were_chosen_before_are_not_chosen_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "is_free", lambda port: port in (20001, 20002, 20003))
    monkeypatch.setattr(ports, "_LAST", 20010)
    assert free_ports(1, chosen_before=(20001, 20003)) == [20002]
    assert sorted(free_ports(2, chosen_before=(20002,))) == [20001, 20003]
