"""The options of the sink: what they mean for the producer, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from spark_groupsource.errors import (
    OptionError,
)
from spark_groupsource.options.sink_model import SinkOptions
from spark_groupsource.sink.native_producer import NativeProducer

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:1"}


class TestOptions:
    def test_a_stream_writes_exactly_once_and_a_batch_at_least_once(self) -> None:
        options = SinkOptions.parse({**SERVERS, "topic": "orders"}, "stream")
        assert options.sink_settings("stream").exactly_once
        assert not options.sink_settings("batch").exactly_once

    def test_javas_names_are_translated(self) -> None:
        given = {
            "kafka.acks": "all",
            "kafka.batch.size": "16384",
            "kafka.buffer.memory": "33554432",
            "kafka.compression.type": "lz4",
            "kafka.delivery.timeout.ms": "60000",
            "kafka.linger.ms": "0",
            "kafka.max.block.ms": "5000",
            "kafka.max.request.size": "2000000",
            "kafka.transaction.timeout.ms": "70000",
        }
        producer = SinkOptions.parse({**SERVERS, **given}, "stream").sink_settings("stream").producer
        assert producer["queue.buffering.max.kbytes"] == "32768"
        assert producer["message.timeout.ms"] == "60000"
        assert producer["topic.metadata.propagation.max.ms"] == "5000"
        assert producer["message.max.bytes"] == "2000000"
        assert producer["compression.type"] == "lz4"
        NativeProducer({**producer, "transactional.id": "t", "log_level": "0"}, "t").close()

    @pytest.mark.parametrize("given", [{"kafka.acks": "1"}, {"kafka.retries": "0"}, {"kafka.max.in.flight": "6"}], ids=str)
    def test_what_excludes_an_idempotent_producer_turns_it_off_as_in_java(self, given: Mapping[str, str]) -> None:
        producer = SinkOptions.parse({**SERVERS, **given}, "batch").sink_settings("batch").producer
        assert producer["enable.idempotence"] == "false"
        NativeProducer({**producer, "log_level": "0"}, "t").close()

    @pytest.mark.parametrize("given", [{}, {"kafka.acks": "1"}, {"kafka.enable.idempotence": "false"}], ids=str)
    def test_five_requests_at_most_are_in_flight_as_in_java(self, given: Mapping[str, str]) -> None:
        """librdkafka's default without idempotence is a million: that many may overtake a request that is sent again."""
        producer = SinkOptions.parse({**SERVERS, **given}, "batch").sink_settings("batch").producer
        assert producer["max.in.flight.requests.per.connection"] == "5"
        assert producer["enable.idempotence"] == ("false" if given else "true")

    @pytest.mark.parametrize("given", ["60000", None])
    def test_brokers_wait_for_their_replicas_as_long_as_the_producer_for_an_answer(self, given: str | None) -> None:
        timeout = {} if given is None else {"kafka.request.timeout.ms": given}
        producer = SinkOptions.parse({**SERVERS, **timeout}, "stream").sink_settings("stream").producer
        assert producer["socket.timeout.ms"] == producer["request.timeout.ms"] == (given or "30000")
        NativeProducer({**producer, "transactional.id": "t", "log_level": "0"}, "t").close()

    @pytest.mark.parametrize(
        ("codec", "level"),
        [({"kafka.compression.type": "ZSTD"}, "7"), ({"kafka.compression.codec": "gzip"}, "1"), ({}, None)],
        ids=str,
    )
    def test_the_level_of_one_codec_does_not_act_on_another(self, codec: Mapping[str, str], level: str | None) -> None:
        levels = {"kafka.compression.gzip.level": "1", "kafka.compression.lz4.level": "17", "kafka.compression.zstd.level": "7"}
        producer = SinkOptions.parse({**SERVERS, **codec, **levels}, "stream").sink_settings("stream").producer
        assert producer.get("compression.level") == level
        NativeProducer({**producer, "transactional.id": "t", "log_level": "0"}, "t").close()

    def test_delivery_fits_into_a_short_transaction(self) -> None:
        given = {**SERVERS, "kafka.transaction.timeout.ms": "30000"}
        producer = SinkOptions.parse(given, "stream").sink_settings("stream").producer
        NativeProducer({**producer, "transactional.id": "t", "log_level": "0"}, "t").close()

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"kafka.transactional.id": "x"}, "set the transactionalIdPrefix option"),
            ({"kafka.key.serializer": "x"}, "serialize them with DataFrame operations"),
            ({"kafka.group.id": "x"}, "it is a consumer setting"),
            ({"kafka.lingr.ms": "1"}, "Did you mean kafka.linger.ms"),
            ({"kafka.partitioner.class": "x"}, "kafka.partitioner"),
            ({"kafka.buffer.memory": "many"}, "a number of at least 1024 bytes"),
            ({"kafka.max.in.flight": "6"}, "kafka.max.in.flight.requests.per.connection=6 cannot be combined with exactly-once"),
            (
                {"deliveryGuarantee": "at-least-once", "kafka.enable.idempotence": "true", "kafka.acks": "1"},
                "kafka.acks=1 cannot be combined with kafka.enable.idempotence=true",
            ),
            ({"kafka.linger.ms": "1000", "kafka.delivery.timeout.ms": "1000"}, r"kafka.linger.ms \(1000 ms\) must be less"),
            ({"kafka.enable.idempotence": "false"}, "cannot be combined with exactly-once"),
            ({"deliveryGuarantee": "maybe"}, "exactly-once or at-least-once is expected"),
            ({"deliveryGuarantee": "at-least-once", "rewriteBatch": "1"}, "rewriteBatch is for streams"),
            ({"transactionalIdPrefix": "a b"}, "letters, digits"),
            ({"topic": "a,b"}, "add a topic column"),
            ({"topics": "a"}, "Did you mean topic"),
            ({"kafka.transaction.timeout.ms": "1000", "kafka.delivery.timeout.ms": "2000"}, "is longer than"),
            ({"kafka.delivery.timeout.ms": "1000000"}, r"kafka.delivery.timeout.ms \(1000000 ms\) is longer than"),
            (
                {"kafka.transaction.timeout.ms": "5000", "kafka.request.timeout.ms": "9000"},
                r"request.timeout.ms \(9000 ms\) is longer",
            ),
            ({"kafka.delivery.timeout.ms": "0"}, "would wait forever"),
            ({"kafka.max.request.size": "50000000"}, r"kafka.buffer.memory \(33554432 bytes\) is less than"),
        ],
    )
    def test_mistakes_are_named(self, given: Mapping[str, str], said: str) -> None:
        with pytest.raises(OptionError, match=said):
            SinkOptions.parse({**SERVERS, "topic": "orders", **given}, "stream")

    def test_a_batch_write_cannot_be_exactly_once(self) -> None:
        with pytest.raises(OptionError, match="is for streams"):
            SinkOptions.parse({**SERVERS, "deliveryGuarantee": "exactly-once"}, "batch")

    def test_no_secret_is_shown(self) -> None:
        given = {
            **SERVERS,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.username": "u",
            "kafka.sasl.password": "hunter2",
        }
        options = SinkOptions.parse(given, "stream")
        assert "hunter2" not in repr(options) + str(options) + repr(options.sink_settings("stream"))
        assert options.sink_settings("stream").producer["sasl.password"] == "hunter2"
