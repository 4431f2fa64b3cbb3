"""Translates settings for Java key stores and trust stores to the files or PEM strings that librdkafka reads for TLS."""

from __future__ import annotations

import re

from spark_groupsource.kafka_settings.draft import Draft

_PEM_BLOCK = re.compile(r"-----BEGIN (?P<label>[A-Z0-9 ]+)-----(?P<body>[A-Za-z0-9+/=\s]*)-----END (?P=label)-----\s*")


def _pem(text: str) -> str | None:
    """Return PEM with the line breaks that OpenSSL needs but Java does not, or `None` if the text is not PEM."""
    if "-----BEGIN " not in text:
        return None

    def wrap(match: re.Match[str]) -> str:
        body = re.sub(r"\s+", "", match["body"])
        lines = "".join(body[at : at + 64] + "\n" for at in range(0, len(body), 64))
        return f"-----BEGIN {match['label']}-----\n{lines}-----END {match['label']}-----\n"

    return _PEM_BLOCK.sub(wrap, text.strip())


def _put_pem(draft: Draft, target: str, text: str, source: str) -> None:
    pem = _pem(text)
    if pem is None:
        draft.wrong(source, "a string in PEM form (-----BEGIN ...) is expected, not a file name")
    else:
        draft.put(target, pem, source)


_TRUST = (
    "librdkafka reads trusted certificates only as PEM. Convert it: for a JKS trust store, first run `keytool -importkeystore "
    "-srckeystore truststore.jks -destkeystore truststore.p12 -deststoretype PKCS12`, then run `openssl pkcs12 -in "
    "truststore.p12 -nokeys -out ca.pem`. Copy ca.pem to every node, and set kafka.ssl.truststore.type=PEM and "
    "kafka.ssl.truststore.location to its path"
)

_JKS_KEY = (
    "librdkafka cannot read Java key stores. To convert it, run: `keytool -importkeystore -srckeystore keystore.jks "
    "-destkeystore keystore.p12 -deststoretype PKCS12`. Copy keystore.p12 to every node, and set "
    "kafka.ssl.keystore.type=PKCS12 and kafka.ssl.keystore.location to its path"
)


def translate_truststore(draft: Draft) -> None:
    """Translate the settings for the trust store, which must be PEM."""
    names = ("ssl.truststore.type", "ssl.truststore.location", "ssl.truststore.certificates", "ssl.truststore.password")
    kind, location, certificates, password = (draft.take(name) for name in names)
    if (kind, location, certificates, password) == (None,) * 4:
        return
    kind = (kind or "").strip().upper()
    if kind == "PEM":
        if (location is None) == (certificates is None):
            draft.wrong(
                "ssl.truststore.type",
                "PEM needs either kafka.ssl.truststore.location or kafka.ssl.truststore.certificates",
            )
        elif location is not None:
            draft.put("ssl.ca.location", location, "ssl.truststore.location")
        elif certificates is not None:
            _put_pem(draft, "ssl.ca.pem", certificates, "ssl.truststore.certificates")
        if password is not None:
            draft.wrong("ssl.truststore.password", "certificates in PEM form have no password; remove it")
    elif certificates is not None:
        draft.wrong("ssl.truststore.type", "kafka.ssl.truststore.certificates needs kafka.ssl.truststore.type=PEM")
    else:
        draft.wrong("ssl.truststore.type" if kind else "ssl.truststore.location", _TRUST)


def translate_keystore(draft: Draft) -> None:
    """Translate the settings for the key store, which must be PEM or PKCS12."""
    kind = (draft.take("ssl.keystore.type") or "").strip().upper()
    key, chain = draft.take("ssl.keystore.key"), draft.take("ssl.keystore.certificate.chain")
    location = draft.given.get("ssl.keystore.location")
    if not kind and location is not None and location.strip().lower().endswith((".p12", ".pfx")):
        # Java's default type can also read such files.
        kind = "PKCS12"
    if kind == "PEM":
        _pem_keystore(draft, key, chain)
    elif key is not None or chain is not None:
        draft.wrong(
            "ssl.keystore.type",
            "kafka.ssl.keystore.key and kafka.ssl.keystore.certificate.chain need kafka.ssl.keystore.type=PEM",
        )
    elif kind == "PKCS12":
        _pkcs12_keystore(draft)
    elif kind or location is not None:
        for name in ("ssl.keystore.location", "ssl.keystore.password", "ssl.key.password"):
            draft.take(name)
        draft.wrong("ssl.keystore.type" if kind else "ssl.keystore.location", _JKS_KEY)


def _pkcs12_keystore(draft: Draft) -> None:
    """Check a PKCS12 key store's passwords, because librdkafka accepts only one for both the file and its key."""
    password, key_password = draft.given.get("ssl.keystore.password"), draft.take("ssl.key.password")
    for name in ("ssl.keystore.location", "ssl.keystore.password"):
        if name not in draft.given:
            draft.wrong(name, "it is missing; a PKCS12 key store needs it")
    if key_password is not None and key_password != password:
        draft.wrong("ssl.key.password", "a PKCS12 key store has one password, kafka.ssl.keystore.password; remove this one")


def _pem_keystore(draft: Draft, key: str | None, chain: str | None) -> None:
    location = draft.take("ssl.keystore.location")
    if draft.take("ssl.keystore.password") is not None:
        draft.wrong("ssl.keystore.password", "a PEM key store has no password; the key's password is kafka.ssl.key.password")
    if location is not None:
        if key is not None or chain is not None:
            draft.wrong(
                "ssl.keystore.location",
                "kafka.ssl.keystore.key or kafka.ssl.keystore.certificate.chain is set, too; keep either the file or the text",
            )
        draft.put("ssl.key.location", location, "ssl.keystore.location")
        draft.put("ssl.certificate.location", location, "ssl.keystore.location")
    elif key is None or chain is None:
        draft.wrong(
            "ssl.keystore.type",
            "PEM needs kafka.ssl.keystore.key and kafka.ssl.keystore.certificate.chain, or kafka.ssl.keystore.location",
        )
    else:
        _put_pem(draft, "ssl.key.pem", key, "ssl.keystore.key")
        _put_pem(draft, "ssl.certificate.pem", chain, "ssl.keystore.certificate.chain")
