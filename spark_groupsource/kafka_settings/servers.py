"""`bootstrap.servers`: what Java's client takes, written so that librdkafka reads the same.

Java's client leaves out empty entries and the blanks around an address, and takes an IPv6 address without brackets
(ClientUtils.parseAndValidateAddresses, Utils.HOST_PORT_PATTERN). librdkafka takes the last number of such an address for a part
of the host, a line break for a part of a name, and 9092 for a port that is missing. It leaves out a server that it cannot read
and all that follow, and says so in its log only.
"""

from __future__ import annotations

import re
from ipaddress import IPv6Address

from spark_groupsource.kafka_settings.secrets import shown

_ADDRESS = re.compile(r"(?:(\w+)://)?(?:\[([^\[\]]+)\]|([^\[\]]+)):0*([0-9]{1,5})", re.ASCII)
_NAME = re.compile(r"[^\s\[\]/:@%]+")
_ZONE = re.compile(r"[^\s\[\]/:@%]+")

HOST_AND_PORT = "write host:port, such as kafka-1:9092 or [fe80::1%eth0]:9092, with a port from 1 to 65535"


def servers(text: str, protocol: str) -> str:
    """Return the addresses as librdkafka reads them: host:port with commas between them, an IPv6 address in brackets.

    Args:
        text: The addresses as Java's client takes them. Each may begin with the name of the protocol, in any case.
        protocol: `security.protocol`, in lower case.

    Raises:
        ValueError: An address has no port, or a wrong one, or names another protocol; or there is none. The text says what to
            write, and shows no password.
    """
    given = [server.strip() for server in text.split(",")]
    read = [_server(server, protocol) for server in given if server]
    if not read:
        raise ValueError(f"it names no broker: {HOST_AND_PORT}")
    return ",".join(read)


def _server(server: str, protocol: str) -> str:
    address = _ADDRESS.fullmatch(server)
    host = None if address is None else _host(address[2] or address[3])
    if address is None or host is None or not 0 < int(address[4]) < 65536:
        raise ValueError(f"{shown('', server)} is no address of a broker: {HOST_AND_PORT}")
    if (address[1] or protocol).lower() != protocol:
        raise ValueError(f"{address[1]}:// is not kafka.security.protocol, which is {protocol}. Write host:port alone")
    return f"{host}:{int(address[4])}"


def _host(text: str) -> str | None:
    """Return a name, an IPv4 address, or an IPv6 address in brackets with its zone; `None` if it is none of them."""
    if _NAME.fullmatch(text):
        return text
    address, mark, zone = text.partition("%")
    try:
        IPv6Address(address)
    except ValueError:
        return None
    return f"[{text}]" if not mark or _ZONE.fullmatch(zone) else None
