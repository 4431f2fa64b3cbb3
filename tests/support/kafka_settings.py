"""What the tests of Kafka client settings share: the clients' own verdict, and the beginnings of common settings."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from confluent_kafka import Consumer

from spark_groupsource.errors import OptionError
from spark_groupsource.kafka_settings.translation import translate

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"

OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"

SASL_SSL = {"security.protocol": "SASL_SSL"}

WITH_PLAIN = {**SASL_SSL, "sasl.mechanism": "PLAIN"}

WITH_OAUTH = {**SASL_SSL, "sasl.mechanism": "OAUTHBEARER"}


def refusal(settings: Mapping[str, str]) -> str:
    with pytest.raises(OptionError) as caught:
        translate(settings)
    return str(caught.value)


def accepted_by_librdkafka(settings: Mapping[str, str]) -> bool:
    Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": "0", **settings}).close()
    return True
