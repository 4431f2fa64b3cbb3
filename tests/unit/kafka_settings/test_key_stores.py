"""TLS: Java's key stores and trust stores become librdkafka's files and PEM, or an error says how to convert them."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509 import load_pem_x509_certificate

from spark_groupsource.kafka_settings.translation import translate
from tests.support.kafka_settings import accepted_by_librdkafka

LEAF = trustme.CA(key_type=trustme.KeyType.ECDSA).issue_cert("127.0.0.1")
LEAF_KEY = load_pem_private_key(LEAF.private_key_pem.bytes(), password=None)
assert isinstance(LEAF_KEY, EllipticCurvePrivateKey)
KEY = LEAF_KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
ENCRYPTED_KEY = LEAF_KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"key-password")).decode()
CERTIFICATE = LEAF.cert_chain_pems[0].bytes().decode()
PKCS12 = serialize_key_and_certificates(
    None, LEAF_KEY, load_pem_x509_certificate(CERTIFICATE.encode()), None, BestAvailableEncryption(b"store-password")
)

TLS = {"security.protocol": "SSL"}

# --- What is translated ------------------------------------------------------------------------------------------------------

TRANSLATED: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "TLS with the system's authorities": (
        {**TLS, "ssl.endpoint.identification.algorithm": "HTTPS"},
        {"security.protocol": "ssl", "ssl.endpoint.identification.algorithm": "https"},
    ),
    "no check of the host's name": (
        {**TLS, "ssl.endpoint.identification.algorithm": ""},
        {"security.protocol": "ssl", "ssl.endpoint.identification.algorithm": "none"},
    ),
    "PEM trust store on one line, as Java takes it": (
        {**TLS, "ssl.truststore.type": "pem", "ssl.truststore.certificates": CERTIFICATE.replace("\n", " ")},
        {"security.protocol": "ssl", "ssl.ca.pem": CERTIFICATE},
    ),
    "PEM key store as text": (
        {
            **TLS,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": KEY.replace("\n", " "),
            "ssl.keystore.certificate.chain": CERTIFICATE,
        },
        {"security.protocol": "ssl", "ssl.key.pem": KEY, "ssl.certificate.pem": CERTIFICATE},
    ),
    "PEM key with a password": (
        {
            **TLS,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": ENCRYPTED_KEY,
            "ssl.key.password": "key-password",
            "ssl.keystore.certificate.chain": CERTIFICATE,
        },
        {
            "security.protocol": "ssl",
            "ssl.key.pem": ENCRYPTED_KEY,
            "ssl.key.password": "key-password",
            "ssl.certificate.pem": CERTIFICATE,
        },
    ),
}


def test_a_pem_file_serves_as_trust_store_and_as_key_store(tmp_path: Path) -> None:
    file = tmp_path / "all.pem"
    file.write_text(KEY + CERTIFICATE)
    trusted = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(file)}
    settings = translate({**TLS, **trusted, "ssl.keystore.type": "PEM", "ssl.keystore.location": str(file)})
    names = ("ssl.ca.location", "ssl.key.location", "ssl.certificate.location")
    assert settings == {"security.protocol": "ssl", **dict.fromkeys(names, str(file))}
    assert accepted_by_librdkafka(settings)


@pytest.mark.parametrize("kind", [{"ssl.keystore.type": "PKCS12"}, {}])
def test_a_pkcs12_key_store_is_taken_as_it_is(tmp_path: Path, kind: dict[str, str]) -> None:
    file = tmp_path / "store.p12"
    file.write_bytes(PKCS12)
    store = {"ssl.keystore.location": str(file), "ssl.keystore.password": "store-password"}
    settings = translate({**TLS, **store, "ssl.key.password": "store-password", **kind})
    assert settings == {"security.protocol": "ssl", **store}
    assert accepted_by_librdkafka(settings)


# --- What is refused ---------------------------------------------------------------------------------------------------------

REFUSALS: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "authorities without TLS": (
        {"ssl.ca.location": "/ca.pem"},
        ("kafka.security.protocol", "kafka.ssl.ca.location would have no effect"),
    ),
    "Java trust store": (
        {**TLS, "ssl.truststore.location": "/t.jks", "ssl.truststore.password": "x"},
        ("kafka.ssl.truststore.location", "keytool", "openssl"),
    ),
    "PKCS12 trust store": (
        {**TLS, "ssl.truststore.type": "PKCS12", "ssl.truststore.location": "/t.p12"},
        ("kafka.ssl.truststore.type", "openssl pkcs12"),
    ),
    "PEM trust store with password": (
        {**TLS, "ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca.pem", "ssl.truststore.password": "x"},
        ("kafka.ssl.truststore.password", "no password"),
    ),
    "PEM without its type": (
        {**TLS, "ssl.truststore.certificates": CERTIFICATE},
        ("kafka.ssl.truststore.type", "PEM"),
    ),
    "a file's name for PEM text": (
        {**TLS, "ssl.truststore.type": "PEM", "ssl.truststore.certificates": "/ca.pem"},
        ("kafka.ssl.truststore.certificates", "not a file name"),
    ),
    "Java key store": (
        {**TLS, "ssl.keystore.location": "/k.jks", "ssl.keystore.password": "x", "ssl.key.password": "x"},
        ("kafka.ssl.keystore.location", "keytool"),
    ),
    "PKCS12 key store without password": (
        {**TLS, "ssl.keystore.type": "PKCS12", "ssl.keystore.location": "/k.p12"},
        ("kafka.ssl.keystore.password", "it is missing"),
    ),
    "PKCS12 key store with two passwords": (
        {**TLS, "ssl.keystore.location": "/k.p12", "ssl.keystore.password": "x", "ssl.key.password": "y"},
        ("kafka.ssl.key.password", "one password"),
    ),
    "half a PEM key store": (
        {**TLS, "ssl.keystore.type": "PEM", "ssl.keystore.key": KEY},
        ("kafka.ssl.keystore.certificate.chain",),
    ),
    "Java's cipher suites": (
        {**TLS, "ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"},
        ("kafka.ssl.cipher.suites", "OpenSSL's cipher suite names"),
    ),
}
