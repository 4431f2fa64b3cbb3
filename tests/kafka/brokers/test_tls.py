"""TLS where librdkafka differs from Java's clients: against a server that only shakes hands."""

from __future__ import annotations

import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import trustme

from spark_groupsource.errors import AuthenticationFailed, GroupKafkaError, OptionError
from spark_groupsource.fetch import pure_consumer as pure
from spark_groupsource.fetch.contract import FetchRange
from spark_groupsource.options.model import Options
from tests.support.waiting import in_background


class Handshakes:
    """A server whose certificate an intermediate authority has signed."""

    def __init__(self, folder: Path) -> None:
        root = trustme.CA()
        intermediate = root.create_child_ca()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        intermediate.issue_cert("127.0.0.1").configure_cert(self.context)
        self.root, self.intermediate = folder / "root.pem", folder / "intermediate.pem"
        root.cert_pem.write_to_path(self.root)
        intermediate.cert_pem.write_to_path(self.intermediate)
        self.negotiated: list[tuple[str, str, int] | None] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        in_background(self._serve)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            try:
                with self.context.wrap_socket(connection, server_side=True) as secured:
                    self.negotiated.append(secured.cipher())
            except OSError:
                connection.close()

    def read(self, **more: str) -> GroupKafkaError:
        """Read with TLS; return the error, as nothing is ever answered."""
        given = {
            "kafka.bootstrap.servers": f"127.0.0.1:{self.listener.getsockname()[1]}",
            "kafka.group.id": "any",
            "subscribe": "any",
            "kafka.security.protocol": "SSL",
            "kafkaConsumer.pollTimeoutMs": "3000",
        }
        options = Options.parse({**given, **{f"kafka.ssl.{name}": value for name, value in more.items()}})
        with pytest.raises(GroupKafkaError) as caught:
            list(pure.read(FetchRange("any", 0, 0, 1), options.fetch_settings()))
        return caught.value


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Handshakes]:
    running = Handshakes(tmp_path)
    yield running
    running.listener.close()


def pem(path: Path) -> Mapping[str, str]:
    return {"truststore.type": "PEM", "truststore.location": str(path)}


def test_a_list_of_cipher_suites_does_not_restrict_tls_1_3(server: Handshakes) -> None:
    server.read(**pem(server.root), **{"cipher.suites": "ECDHE-ECDSA-AES128-GCM-SHA256"})
    name, version, _ = server.negotiated[0] or ("", "", 0)
    assert (version, name[:4]) == ("TLSv1.3", "TLS_")

    server.context.maximum_version = ssl.TLSVersion.TLSv1_2
    server.negotiated.clear()
    server.read(**pem(server.root), **{"cipher.suites": "ECDHE-ECDSA-AES128-GCM-SHA256"})
    assert (server.negotiated[0] or ("",))[0] == "ECDHE-ECDSA-AES128-GCM-SHA256"


def test_a_trust_store_needs_the_root(server: Handshakes) -> None:
    for trusted in (pem(server.intermediate), {}):
        refused = server.read(**trusted)
        assert isinstance(refused, AuthenticationFailed)
        assert "an intermediate one alone is not enough" in str(refused)
        assert "not the JVM's" in str(refused)
        assert server.negotiated == []
    assert not isinstance(server.read(**pem(server.root)), AuthenticationFailed)
    assert server.negotiated


@pytest.mark.long
def test_an_old_key_store_is_converted_as_the_error_says(tmp_path: Path) -> None:
    keytool = shutil.which("keytool")
    assert keytool is not None
    password = ["-storepass", "changeit"]
    made = ["-genkeypair", "-alias", "a", "-keyalg", "RSA", "-dname", "CN=a", "-keystore", "keystore.p12", "-storetype", "PKCS12"]
    subprocess.run([keytool, "-J-Dkeystore.pkcs12.legacy", *made, *password], check=True, cwd=tmp_path, timeout=120)

    def client(name: str) -> None:
        store = {"ssl.keystore.location": str(tmp_path / name), "ssl.keystore.password": "changeit"}
        pure.PureConsumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "any", "security.protocol": "ssl", **store}).close()

    with pytest.raises(OptionError, match=r"keytool -importkeystore .* new\.p12") as caught:
        client("keystore.p12")
    (arguments,) = re.findall("`keytool (.*)`", str(caught.value))
    secrets = ["-srcstorepass", "changeit", "-deststorepass", "changeit"]
    subprocess.run([keytool, *arguments.split(), *secrets], check=True, cwd=tmp_path, timeout=120)
    client("new.p12")
