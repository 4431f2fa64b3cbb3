"""`make records`: writes records into a topic, ten each second, until Ctrl-C."""

from __future__ import annotations

import signal
import time

import click
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from devtools import program
from spark_groupsource.brokers.broker_errors import explain
from spark_groupsource.brokers.client import librdkafka_log
from spark_groupsource.errors import BrokerUnavailable

PARTITIONS = 4
PER_SECOND = 10
KEYS = 10
ANSWER_LIMIT_S = 30.0


@click.command(name="records")
@click.option("--bootstrap-server", metavar="HOST:PORT", default="localhost:9092", show_default=True, help="The Kafka brokers.")
@click.option(
    "--topic", metavar="NAME", default="orders", show_default=True, help="The topic, which is created if it does not exist."
)
def records(bootstrap_server: str, topic: str) -> None:
    """Write `order 0`, `order 1`, ... into a topic, ten records each second, until Ctrl-C."""
    _create(bootstrap_server, topic)
    # An exception could come between the delivery of ten records and their count.
    stopping: list[int] = []
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda number, _frame: stopping.append(number))
    producer = Producer({"bootstrap.servers": bootstrap_server}, logger=librdkafka_log)
    written = 0
    while not stopping:
        for number in range(written, written + PER_SECOND):
            producer.produce(topic, key=str(number % KEYS), value=f"order {number}")
        if producer.flush(ANSWER_LIMIT_S):
            raise BrokerUnavailable(f"The brokers have not accepted any record for {ANSWER_LIMIT_S:.0f} s.")
        written += PER_SECOND
        if written == PER_SECOND:
            click.echo(f"writing {PER_SECOND} records each second into {topic}; Ctrl-C ends it")
        time.sleep(1)
    click.echo(f"{written} records were written into {topic}")


def _create(bootstrap_server: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_server}, logger=librdkafka_log)
    created = admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS)], request_timeout=ANSWER_LIMIT_S)
    try:
        created[topic].result()
    except KafkaException as refused:
        error: KafkaError = refused.args[0]
        if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise explain(error, f"creating the topic {topic}") from refused


if __name__ == "__main__":
    program.run(records, "python -m devtools.records")
