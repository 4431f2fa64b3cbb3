"""The metrics of running queries, over HTTP."""

from __future__ import annotations

from collections.abc import Callable

from devtools.broker.ports import free_ports, is_free
from tests.conftest import MakeTopic, Produce
from tests.support.queries import Queries
from tests.support.scraping import Scrape, scraped_from
from tests.support.waiting import until

RECORD = (None, b"x")


def when(url: str, true: Callable[[Scrape], object], what: str) -> Scrape:
    """The first scrape of which something is true."""
    seen: list[Scrape] = []

    def now() -> bool:
        try:
            seen.append(scraped_from(url))
        except OSError:
            # Nobody serves yet, or the run before still ends.
            return False
        return bool(true(seen[-1]))

    until(now, what, timeout_s=180)
    return seen[-1]


def test_a_running_query_is_scraped_its_port_ends_with_it_and_a_restart_serves_there_again(
    queries: Queries, topic: MakeTopic, produce: Produce
) -> None:
    """A second query on the same port is refused meanwhile."""
    name = topic(partitions=2)
    produce(name, [RECORD] * 30, partition=0)
    (port,) = free_ports(1)
    pipeline = queries("a", name, **{"metrics.port": str(port)}).start()
    url = f"http://127.0.0.1:{port}/metrics"
    pipeline.until_rows(30)
    idle = when(url, lambda seen: seen.by_partition("groupkafka_partition_committed_offset") == {0: 30, 1: 0}, "30 confirmed")
    assert idle.value("groupkafka_member_info", group=f"group-of-{name}") == 1
    assert idle.by_partition("groupkafka_partition_owned") == {0: 1, 1: 1}
    assert idle.by_partition("groupkafka_partition_lag_offsets") == {0: 0, 1: 0}
    assert idle.value("groupkafka_claimed_offsets_total") == len(pipeline.offsets())
    assert idle.value("groupkafka_commit_duration_seconds_count") >= 3

    message = queries("b", name, **{"metrics.port": str(port)}).start().failure()
    assert "OptionError" in message
    assert f"metrics.port = {port}: the port is already in use" in message
    assert scraped_from(url).value("groupkafka_rebalances_total", kind="revoked") == 0, "the second had not joined the group"

    pipeline.stop()
    pipeline.start()
    produce(name, [RECORD] * 5, partition=1)
    again = when(url, lambda seen: seen.by_partition("groupkafka_partition_committed_offset") == {0: 30, 1: 5}, "5 more")
    assert again.value("groupkafka_claimed_offsets_total") == 5, "counts of this run"
    pipeline.stop()
    until(lambda: is_free(port), "the port is free")
