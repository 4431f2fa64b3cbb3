"""TLS: Java's key stores and trust stores become librdkafka's files and PEM, or an error says how to convert them."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from spark_groupsource.kafka_settings.translation import translate, translation_of
from tests.support.kafka_settings import accepted_by_librdkafka, refusal


def pem(label: str, body: str) -> str:
    lines = "\n".join(body[at : at + 64] for at in range(0, len(body), 64))
    return f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n"


# A certificate that signs itself, its key, and both as PKCS#12; made for these tests with openssl, trusted by nobody.
KEY_BODY = (
    "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgv7/Q/Gb2gESG3taKUqtORAMSf80CdhVKOVedpPsbQlehRANCAARqBepEAonP4waF9eXVmBp4O+SN"
    "DgKvLRYTwqYUA/E1TQEDZ3/S3e9MT+uJkazh0Mmw7aCUF1MnNMY/lPi34b2D"
)

CERTIFICATE_BODY = (
    "MIIBizCCATGgAwIBAgIUMrqLZQothsj0Th2odEz0y4UR8zYwCgYIKoZIzj0EAwIwGjEYMBYGA1UEAwwPZ3JvdXBrYWZrYS10ZXN0MCAXDTI2MTEyMTAzMDk1"
    "NloYDzIxMjYxMDI4MDMwOTU2WjAaMRgwFgYDVQQDDA9ncm91cGthZmthLXRlc3QwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAARqBepEAonP4waF9eXVmBp4"
    "O+SNDgKvLRYTwqYUA/E1TQEDZ3/S3e9MT+uJkazh0Mmw7aCUF1MnNMY/lPi34b2Do1MwUTAdBgNVHQ4EFgQUkWK2Iw6Q2Jnn9sB6PJkRLb9BFH0wHwYDVR0j"
    "BBgwFoAUkWK2Iw6Q2Jnn9sB6PJkRLb9BFH0wDwYDVR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNIADBFAiEAsXWLedXV2XTlmZatKtRfHRNq77ECu62sbLDK"
    "1Nou8PcCIFCcuCSra1pcmckGUYu5+l0VWhI9GN8nCqj3Bc921AWw"
)

PKCS12_BODY = (
    "MIIEHAIBAzCCA9IGCSqGSIb3DQEHAaCCA8MEggO/MIIDuzCCAnIGCSqGSIb3DQEHBqCCAmMwggJfAgEAMIICWAYJKoZIhvcNAQcBMFcGCSqGSIb3DQEFDTBK"
    "MCkGCSqGSIb3DQEFDDAcBAhqWqB4z78M3gICCAAwDAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEEJj7zfy3qHBqZhXz06y/GwCAggHwAuokdg0kl+GKa7OD"
    "kx/ZnLw++KNrWivcwHrF5OdEnDRDfboIuuHDmtUUzyf8dqG6OWQY0EQN92nlbOFa67IoBhZtbAtQljOAkN9JUDsIdp21xfQhPXJ17/UsgE8gSLUyKHmhY4BE"
    "HiwwEE8ySV98nYVn7q2sJy/2+HAcyTC/Y8of7452a62Pm0G7q/CuqIi5Q9ee2M1up97BABN28d1pNzb/7iEXxe3y83kceptSYCtIUrG7he9Tlr3FPwX/iPEq"
    "AiYEnuShdyNjB8ZH0zxazzpQ1UMaHua0jqrYZlRkSDb7pUSe/2lANfxADw7Dxgya7w9LXpwHV2h1PXm3Lzh//F7H3brt5E4eKY+MR51clOzmP3Y1k7HMaNX/"
    "7Z1QdSt89HPvh/UTLhtrmNcZoBWZNn/jr78KwCjhNUVaD7fMnoozUAxIG4ievVleoxvZdyTLEwuTHneqNJZkxrWKcOGDN5Hvc+Vx66LIC8JtR70Gv0SRt9j7"
    "vODyVFhoMQOsTn7f73/muxg5f9f5ltNx9AHMFFUtQk8AONYs9NLjbNlocBiEpUkfwFVLBtoIlBvp7qbJ/plC9SgwNsGKRTgr+UGD0IQZgI1LziRvLvNpwpA7"
    "2wcdiHqisGRn02TEG7wnudK8T3CE2sHuEu/GA2kKTHxOUjCCAUEGCSqGSIb3DQEHAaCCATIEggEuMIIBKjCCASYGCyqGSIb3DQEMCgECoIHvMIHsMFcGCSqG"
    "SIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAjY3byW3k1pZgICCAAwDAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEEB3F6XB4FqxU/ypTrmfSCcYEgZCH8o35"
    "DrzN/1L/Tl11onW1yDREauw3LaYmT6L1+9/pF/QMMOAaZUK5h/3oInCum4l0Sm3vUBMe23BUy0HWlr9hh5AOIvNOxWc8kbVr2Jo/2BOPkqxRZc84QUtdvL3H"
    "/mb48QkE6c+5Iwr8IZWoli7tQfTacwB3T0pAY+yaEGh7FQSp4s6r7gG8eOJH8t6KWp4xJTAjBgkqhkiG9w0BCRUxFgQUixXzwQu8NvQIfjRoiC1LsyZ291Iw"
    "QTAxMA0GCWCGSAFlAwQCAQUABCAKUkPbkwrkZDXCB7CvUSV1yAq66bfQXHzhb84vrhIRWQQIzioKB+kX7BICAggA"
)

ENCRYPTED_KEY_BODY = (
    "MIHsMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAht+fXBTOEEQgICCAAwDAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEEIUOmF706Ak7R4yCthBc"
    "mtIEgZBLP2GHQuQrr2BO111CTWCJc72lVsOhmGkg7lWIUlDiNdtjkiAI9S3/sqm0sqBqPZ2mnl39X5XYItymgLr26BgHZq2eEjynwCEWb21tkZ/mBKX4JF0v"
    "CoX+uO3upffS1/eenWHTKqsUmffu1BIGA3nCgtToFKv7irwdTWL1DVyjeF/Zcpi7V53wfAAM4daUpSo="
)

KEY = pem("PRIVATE KEY", KEY_BODY)

ENCRYPTED_KEY = pem("ENCRYPTED PRIVATE KEY", ENCRYPTED_KEY_BODY)

CERTIFICATE = pem("CERTIFICATE", CERTIFICATE_BODY)

# --- What is translated ------------------------------------------------------------------------------------------------------

TRANSLATED: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "TLS with the system's authorities": (
        {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "HTTPS"},
        {"security.protocol": "ssl", "ssl.endpoint.identification.algorithm": "https"},
    ),
    "no check of the host's name": (
        {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""},
        {"security.protocol": "ssl", "ssl.endpoint.identification.algorithm": "none"},
    ),
    "PEM trust store as text": (
        {"security.protocol": "SSL", "ssl.truststore.type": "pem", "ssl.truststore.certificates": CERTIFICATE},
        {"security.protocol": "ssl", "ssl.ca.pem": CERTIFICATE},
    ),
    "PEM trust store on one line, as Java takes it": (
        {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.certificates": CERTIFICATE.replace("\n", " ")},
        {"security.protocol": "ssl", "ssl.ca.pem": CERTIFICATE},
    ),
    "PEM key store as text": (
        {
            "security.protocol": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": KEY.replace("\n", " "),
            "ssl.keystore.certificate.chain": CERTIFICATE,
        },
        {"security.protocol": "ssl", "ssl.key.pem": KEY, "ssl.certificate.pem": CERTIFICATE},
    ),
    "PEM key with a password": (
        {
            "security.protocol": "SSL",
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


@pytest.mark.parametrize(("java", "librdkafka"), TRANSLATED.values(), ids=TRANSLATED)
def test_it_is_translated_and_librdkafka_takes_it(java: dict[str, str], librdkafka: dict[str, str]) -> None:
    assert translate(java) == librdkafka
    assert accepted_by_librdkafka(translate(java))


def test_a_pem_file_serves_as_trust_store_and_as_key_store(tmp_path: Path) -> None:
    file = tmp_path / "all.pem"
    file.write_text(KEY + CERTIFICATE)
    settings = translate(
        {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(file),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(file),
        }
    )
    assert {name for name, value in settings.items() if value == str(file)} == {
        "ssl.ca.location",
        "ssl.key.location",
        "ssl.certificate.location",
    }
    assert accepted_by_librdkafka(settings)


@pytest.mark.parametrize("kind", [{"ssl.keystore.type": "PKCS12"}, {}])
def test_a_pkcs12_key_store_is_taken_as_it_is(tmp_path: Path, kind: dict[str, str]) -> None:
    file = tmp_path / "store.p12"
    file.write_bytes(base64.b64decode(PKCS12_BODY))
    settings = translate(
        {
            "security.protocol": "SSL",
            "ssl.keystore.location": str(file),
            "ssl.keystore.password": "store-password",
            "ssl.key.password": "store-password",
            **kind,
        }
    )
    assert settings == {
        "security.protocol": "ssl",
        "ssl.keystore.location": str(file),
        "ssl.keystore.password": "store-password",
    }
    assert accepted_by_librdkafka(settings)


# --- What is refused ---------------------------------------------------------------------------------------------------------

TLS = {"security.protocol": "SSL"}

REFUSALS: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "authorities without TLS": ({"ssl.ca.location": "/ca.pem"}, ("kafka.security.protocol", "kafka.ssl.ca.location unused")),
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
        ("kafka.ssl.truststore.certificates", "not the name of a file"),
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
    "TLS versions": ({**TLS, "ssl.enabled.protocols": "TLSv1.2"}, ("kafka.ssl.enabled.protocols", "OpenSSL")),
    "Java's cipher suites": (
        {**TLS, "ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"},
        ("kafka.ssl.cipher.suites", "OpenSSL's names"),
    ),
}


@pytest.mark.parametrize(("settings", "said"), REFUSALS.values(), ids=REFUSALS)
def test_it_is_refused_and_the_error_says_what_to_write_instead(settings: dict[str, str], said: tuple[str, ...]) -> None:
    message = refusal(settings)
    assert [fragment for fragment in said if fragment not in message] == []


def test_one_mistake_is_reported_once() -> None:
    assert len(translation_of(REFUSALS["Java key store"][0]).problems) == 1
