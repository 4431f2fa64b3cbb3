"""A plain consumer that joins the group when the queries have left it: what it gets, it reads again."""

from __future__ import annotations

from confluent_kafka import Consumer

from tests.support.waiting import until

LIMIT_S = 60.0


def records_for_a_plain_consumer(bootstrap_servers: str, group: str, topic: str, partitions: int, protocol: str) -> int:
    """Return how many records it reads until it owns every partition and stands at the end of each."""
    # With the classic protocol queries and other clients of one group share the cooperative strategy.
    strategy = {} if protocol == "consumer" else {"partition.assignment.strategy": "cooperative-sticky"}
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
            **strategy,
        }
    )
    records = 0
    ended: set[int] = set()

    def at_the_end() -> bool:
        nonlocal records
        for message in consumer.consume(500, 0.2):
            partition = message.partition()
            if message.error() is None:
                records += 1
            elif partition is not None:
                ended.add(partition)
        owned = {one.partition for one in consumer.assignment()}
        return len(owned) == partitions and owned <= ended

    consumer.subscribe([topic])
    try:
        until(at_the_end, f"a plain consumer of {group} stands at the ends of {partitions} partitions", LIMIT_S)
    finally:
        consumer.close()
    return records
