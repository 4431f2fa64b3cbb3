"""What the look-ups of topics leave behind in the runner, which does two of them in each micro-batch for months."""

from __future__ import annotations

import gc

from confluent_kafka import Uuid

from devtools.broker import Cluster
from spark_groupsource.brokers.topics import Topics
from spark_groupsource.options.model import Options
from tests.conftest import MakeTopic

LOOK_UPS = 50


def ids_alive() -> int:
    gc.collect()
    return sum(isinstance(one, Uuid) for one in gc.get_objects())


def test_looking_topic_ids_up_leaves_nothing_behind(cluster: Cluster, topic: MakeTopic) -> None:
    """confluent-kafka 2.16.1 keeps a reference to each topic id that it returns."""
    names = [topic(), topic()]
    options = Options.parse(
        {"kafka.bootstrap.servers": cluster.bootstrap_servers, "kafka.group.id": "g", "subscribe": ",".join(names)}
    )
    topics = Topics(options.client_settings(), options, read_committed=False, patience_s=60)
    first = topics.ids(names)
    alive = ids_alive()
    for _ in range(LOOK_UPS):
        assert topics.ids(names) == first
    assert ids_alive() == alive
