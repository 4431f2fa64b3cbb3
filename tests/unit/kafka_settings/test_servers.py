"""`bootstrap.servers`: what Java's client takes is read the same here, and what is refused says what to write."""

from __future__ import annotations

import pytest

from spark_groupsource.errors import OptionError
from spark_groupsource.kafka_settings.translation import servers, translate
from tests.support.options import BASE, refusal

AS_JAVA_READS_THEM = {
    "one": ("kafka-1:9092", "kafka-1:9092"),
    "several": ("a:1,b.example.com:2,10.0.0.3:3", "a:1,b.example.com:2,10.0.0.3:3"),
    "a comma at the end": ("a:1,b:2,", "a:1,b:2"),
    "empty entries": (",a:1,, ,b:2", "a:1,b:2"),
    "blanks and line breaks": (" a:1 ,\n\tb:2\r\n", "a:1,b:2"),
    "the protocol in upper case": ("PLAINTEXT://a:1,plaintext://b:2", "a:1,b:2"),
    "IPv6": ("[::1]:9092,[2001:DB8::2]:9093", "[::1]:9092,[2001:DB8::2]:9093"),
    "IPv6 with a zone": ("[fe80::1%eth0]:9092,[fe80::1%3]:9092", "[fe80::1%eth0]:9092,[fe80::1%3]:9092"),
    "a zone with other letters": ("[fe80::1%br-lan.7_x]:9092", "[fe80::1%br-lan.7_x]:9092"),
    "IPv6 with an IPv4 part": ("[::ffff:10.0.0.1]:9092", "[::ffff:10.0.0.1]:9092"),
    "IPv6 without brackets": ("::1:9092,fe80::1%eth0:9093", "[::1]:9092,[fe80::1%eth0]:9093"),
    "a protocol and IPv6": ("PLAINTEXT://[::1]:9092,PLAINTEXT://::1:9093", "[::1]:9092,[::1]:9093"),
    "a name in brackets": ("[localhost]:9092", "localhost:9092"),
    "zeros before a port": ("a:00009092", "a:9092"),
    "the first and the last port": ("a:1,a:65535", "a:1,a:65535"),
}


@pytest.mark.parametrize(("given", "read"), AS_JAVA_READS_THEM.values(), ids=AS_JAVA_READS_THEM)
def test_what_javas_client_takes(given: str, read: str) -> None:
    assert servers(given, "plaintext") == read
    assert translate({"bootstrap.servers": given}) == {"bootstrap.servers": read}
    assert translate({"metadata.broker.list": given}) == {"bootstrap.servers": read}
    assert servers(read, "plaintext") == read


REFUSED = {
    "no port": "a:1,b",
    "no host": ":9092",
    "nothing behind the colon": "a:",
    "port 0": "a:0",
    "a port above the last": "a:65536",
    "a long port": "a:" + "9" * 5000,
    "a negative port": "a:-1",
    "a name as a port": "a:http",
    "digits that are not Latin": "a:\u0661",
    "a blank in a name": "a b:1",
    "two servers without a comma": "a:1 b:2",
    "another separator": "a:1;b:2",
    "a path": "a:1/topic",
    "a user": "me:hush@a:1",
    "IPv6 without a port": "::1",
    "IPv6 in brackets without a port": "[::1]",
    "no IPv6": "[fe80::1::2]:9092",
    "a zone without a name": "[fe80::1%]:9092",
    "a zone with a path": "[fe80::1%eth/0]:9092",
    "a bracket that is not closed": "[::1:9092",
    "a bracket that is not opened": "::1]:9092",
    "no address": " , ",
}


@pytest.mark.parametrize("given", REFUSED.values(), ids=REFUSED)
def test_what_is_refused_says_what_to_write(given: str) -> None:
    with pytest.raises(OptionError) as refused:
        translate({"bootstrap.servers": given})
    assert str(refused.value).startswith("kafka.bootstrap.servers = ")
    assert "write host:port, such as kafka-1:9092 or [fe80::1%eth0]:9092, with a port from 1 to 65535" in str(refused.value)
    assert "hush" not in str(refused.value)
    assert len(str(refused.value)) < 1000


def test_the_server_at_fault_is_named() -> None:
    assert ": 'b' is not a broker address" in refusal({**BASE, "kafka.bootstrap.servers": "a:1,b,c:3"})


def test_the_example_of_the_advice_can_be_written() -> None:
    assert servers("kafka-1:9092,[fe80::1%eth0]:9092", "plaintext") == "kafka-1:9092,[fe80::1%eth0]:9092"


def test_another_protocol_is_refused_and_a_protocol_that_does_not_exist_is_one_mistake() -> None:
    with pytest.raises(ValueError, match=r"SSL:// is not kafka\.security\.protocol, which is sasl_ssl\. Write only host:port"):
        servers("SSL://a:1", "sasl_ssl")
    assert servers("SASL_SSL://a:1", "sasl_ssl") == "a:1"
    said = refusal({**BASE, "kafka.bootstrap.servers": "SSL://a:1", "kafka.security.protocol": "TLS"})
    assert "kafka.security.protocol" in said
    assert "bootstrap.servers" not in said
