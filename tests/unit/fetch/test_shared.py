"""What a pass over several partitions is made with; tests/kafka/fetch/test_native_shared.py has what it reads."""

from __future__ import annotations

from spark_groupsource.fetch.contract import BUFFER_BYTES, FetchRange
from spark_groupsource.fetch.shared import _portions, for_passes
from spark_groupsource.options.client_settings import consumer_settings

MIB = 1024 * 1024


def test_its_consumer_fetches_little_ahead_and_waits_little() -> None:
    usual = consumer_settings({"bootstrap.servers": "b:1", "group.id": "g"}, BUFFER_BYTES)
    changed = {name: value for name, value in for_passes(usual).items() if usual[name] != value}
    assert changed == {
        "max.partition.fetch.bytes": "65536",
        "queued.max.messages.kbytes": "64",
        "fetch.wait.max.ms": "2",
    }
    assert for_passes(usual).keys() == usual.keys()


def test_less_that_the_user_has_set_stays() -> None:
    given = {"max.partition.fetch.bytes": "1000", "queued.max.messages.kbytes": "10", "fetch.wait.max.ms": "1"}
    usual = consumer_settings({"bootstrap.servers": "b:1", "group.id": "g", **given}, BUFFER_BYTES)
    assert for_passes(usual) == usual


def test_the_largest_batches_of_a_pass_fit_into_the_buffer() -> None:
    ranges = [FetchRange("t", partition, 0, 3) for partition in range(130)]
    assert [len(portion) for portion in _portions(ranges, 64 * MIB)] == [64, 64, 2]
    assert [len(portion) for portion in _portions(ranges[:3], MIB)] == [1, 1, 1]
    assert _portions([], 64 * MIB) == []
