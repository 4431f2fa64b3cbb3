"""What brokers call the clients of a query, if the user has given them no name."""

from __future__ import annotations

import pytest

from spark_groupsource.kafka_settings.client_id import named
from spark_groupsource.options.model import Options
from spark_groupsource.options.sink_model import SinkOptions
from tests.support.options import BASE

SINK = {"kafka.bootstrap.servers": "a:1", "topic": "orders"}


def test_clients_of_a_query_have_its_name() -> None:
    options = Options.parse(BASE)
    for settings in (options.client_settings(), options.member_settings(), options.fetch_settings().client):
        assert settings["client.id"] == "groupkafka"
        assert named(settings, "5e7") == {**settings, "client.id": "groupkafka-5e7"}
    sink = SinkOptions.parse(SINK, "stream").sink_settings("stream").for_query("5e7")
    assert sink.producer["client.id"] == sink.requests["client.id"] == "groupkafka-5e7"


def test_a_query_is_called_by_its_client_id_or_as_a_static_member() -> None:
    static = {**BASE, "kafka.group.instance.id": "orders-0"}
    given = [BASE, static, {**static, "kafka.client.id": "billing"}]
    assert [Options.parse(options).query_name for options in given] == ["", "orders-0", "billing"]


@pytest.mark.parametrize("given", ["orders-a", "groupkafka-orders"])
def test_a_name_of_the_users_stays(given: str) -> None:
    options = Options.parse({**BASE, "kafka.client.id": given})
    assert named(options.member_settings(), "5e7")["client.id"] == given
    sink = SinkOptions.parse({**SINK, "kafka.client.id": given}, "stream").sink_settings("stream").for_query("5e7")
    assert sink.producer["client.id"] == sink.requests["client.id"] == given
