"""One broker with TLS, SASL and ACLs. It refuses what no ACL allows, except for the administrator, who uses PLAINTEXT."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trustme
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from devtools.broker import Cluster
from tests.support.tokens import AUDIENCE, ISSUER, TokenServer, token_server

USER = "reader"
PASSWORD = 'mock-turtle-soup "\\ 7'  # noqa: S105 -- with characters that mean something to JAAS and to properties files
CLIENT_SECRET = "jabberwocky-and-tea"  # noqa: S105 -- of this broker only
WRONG = "curiouser-and-wronger"

_SECURITY = "org.apache.kafka.common.security"
_OAUTH = f"{_SECURITY}.oauthbearer"


def jaas(module: str, **options: str) -> str:
    """`sasl.jaas.config` as Java's users write it."""
    quoted = {name: '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' for name, value in options.items()}
    return f"{_SECURITY}.{module} required " + " ".join(f"{name}={value}" for name, value in quoted.items()) + ";"


@dataclass(frozen=True)
class Secured:
    """The running broker, and what its clients need.

    `USER` may read topics and groups whose names begin with `open-`, and describe topics that begin with `seen-`.
    """

    cluster: Cluster
    tokens: TokenServer
    folder: Path

    def secrets(self) -> list[str]:
        """Texts that must appear nowhere: the part of the password that no quoting changes, and the signature of a token."""
        return [PASSWORD.partition(" ")[0], CLIENT_SECRET, WRONG, *(token.rpartition(".")[2] for token in self.tokens.issued)]

    def set_scram_password(self, password: str) -> None:
        """Give `USER` another password for SCRAM; existing connections stay open."""
        admin = self._admin()  # a request ends with its client
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            credential = UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, 4096), password.encode())
            _done(admin.alter_user_scram_credentials([credential]))

    def allow(self, *acls: tuple[ResourceType, str, AclOperation]) -> None:
        """Let `USER` do this with all resources of the kind whose names begin with the prefix."""
        bindings = [
            AclBinding(kind, prefix, ResourcePatternType.PREFIXED, f"User:{USER}", "*", operation, AclPermissionType.ALLOW)
            for kind, prefix, operation in acls
        ]
        admin = self._admin()
        _done(admin.create_acls(bindings))

    def allow_describing_group(self, prefix: str) -> None:
        """Let `USER` describe groups whose names begin with the prefix, and not join them."""
        self.allow((ResourceType.GROUP, prefix, AclOperation.DESCRIBE))

    def allow_writing_once(self, prefix: str, *, without: ResourceType | None = None) -> None:
        """Let `USER` write into topics in transactions; all names begin with the prefix. One kind of ACL can be left out."""
        needed = [
            (ResourceType.TOPIC, prefix, AclOperation.WRITE),
            (ResourceType.TOPIC, prefix, AclOperation.READ),
            (ResourceType.GROUP, prefix, AclOperation.READ),
            (ResourceType.TRANSACTIONAL_ID, prefix, AclOperation.WRITE),
            (ResourceType.TRANSACTIONAL_ID, prefix, AclOperation.DESCRIBE),
        ]
        self.allow(*(acl for acl in needed if acl[0] is not without))

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.cluster.bootstrap_servers, "log_level": 0})

    def tls(self, protocol: str = "SSL") -> dict[str, str]:
        """Options for a listener with TLS."""
        return {
            "kafka.bootstrap.servers": self.cluster.address(protocol),
            "kafka.security.protocol": protocol,
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": str(self.folder / "ca.pem"),
        }

    def certificate(self) -> dict[str, str]:
        """Options of a client that shows a certificate."""
        return {"kafka.ssl.keystore.type": "PEM", "kafka.ssl.keystore.location": str(self.folder / "client.pem")}

    def login(self, how: str, secret: str | None = None) -> dict[str, str]:
        """Options of `USER`, as Java's users write them; `secret` is the password or the client's secret if not the right one."""
        password, client_secret = secret or PASSWORD, secret or CLIENT_SECRET
        bearer = {"kafka.sasl.mechanism": "OAUTHBEARER"}
        options: Mapping[str, Mapping[str, str]] = {
            "PLAIN": {
                "kafka.sasl.mechanism": "PLAIN",
                "kafka.sasl.jaas.config": jaas("plain.PlainLoginModule", username=USER, password=password),
            },
            "SCRAM-SHA-256": {
                "kafka.sasl.mechanism": "SCRAM-SHA-256",
                "kafka.sasl.username": USER,
                "kafka.sasl.password": password,
            },
            "SCRAM-SHA-512": {
                "kafka.sasl.mechanism": "SCRAM-SHA-512",
                "kafka.sasl.jaas.config": jaas("scram.ScramLoginModule", username=USER, password=password),
            },
            "OIDC": {
                **bearer,
                "kafka.sasl.login.callback.handler.class": f"{_OAUTH}.OAuthBearerLoginCallbackHandler",
                "kafka.sasl.oauthbearer.token.endpoint.url": self.tokens.url,
                "kafka.sasl.jaas.config": jaas("oauthbearer.OAuthBearerLoginModule", clientId=USER, clientSecret=client_secret),
            },
            "oauth_cb": {
                **bearer,
                "kafka.oauth_cb": "tests.support.tokens:callback",
                "kafka.sasl.oauthbearer.config": f"{self.tokens.url} {USER} {client_secret}",
            },
        }
        return {**self.tls("SASL_SSL"), **options[how]}


@contextmanager
def secured_broker(folder: Path, more: Mapping[str, str] | None = None) -> Iterator[Secured]:
    """Start the broker, with `more` settings, and the token server; certificates and keys go to `folder`."""
    authority = trustme.CA()
    broker = authority.issue_cert("127.0.0.1")
    client = authority.issue_cert("reader@wonderland.example", common_name=USER)
    authority.cert_pem.write_to_path(folder / "ca.pem")
    client.private_key_and_cert_chain_pem.write_to_path(folder / "client.pem")
    with token_server({USER: CLIENT_SECRET}) as tokens:
        (folder / "jwks.json").write_text(tokens.jwks())
        keys = (folder / "jwks.json").as_uri()
        config = {**_tls(authority, broker), **_sasl(keys), **_ACCESS, **(more or {})}
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys}"
        with Cluster(config=config, protocols=("SSL", "SASL_SSL"), jvm_options=(allowed,)) as cluster:
            running = Secured(cluster, tokens, folder)
            running.set_scram_password(PASSWORD)
            running.allow(
                (ResourceType.TOPIC, "open-", AclOperation.READ),
                (ResourceType.GROUP, "open-", AclOperation.READ),
                (ResourceType.TOPIC, "seen-", AclOperation.DESCRIBE),
            )
            yield running


_ACCESS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "500",
}


def _tls(authority: trustme.CA, broker: trustme.LeafCert) -> dict[str, str]:
    key = load_pem_private_key(broker.private_key_pem.bytes(), password=None)
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
        "ssl.keystore.certificate.chain": b"".join(one.bytes() for one in broker.cert_chain_pems).decode(),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.cert_pem.bytes().decode(),
        "listener.name.ssl.ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^.*CN=([^,]+).*$/$1/",
    }


def _sasl(keys: str) -> dict[str, str]:
    listener = "listener.name.sasl_ssl"
    return {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        f"{listener}.plain.sasl.jaas.config": jaas("plain.PlainLoginModule", **{f"user_{USER}": PASSWORD}),
        f"{listener}.scram-sha-256.sasl.jaas.config": jaas("scram.ScramLoginModule"),
        f"{listener}.scram-sha-512.sasl.jaas.config": jaas("scram.ScramLoginModule"),
        f"{listener}.oauthbearer.sasl.jaas.config": jaas("oauthbearer.OAuthBearerLoginModule"),
        f"{listener}.oauthbearer.sasl.server.callback.handler.class": f"{_OAUTH}.OAuthBearerValidatorCallbackHandler",
        f"{listener}.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": keys,
        f"{listener}.oauthbearer.sasl.oauthbearer.expected.audience": AUDIENCE,
        f"{listener}.oauthbearer.sasl.oauthbearer.expected.issuer": ISSUER,
        # A connection ends when its token expires, unless the client logs in again with a new one (KIP-368).
        f"{listener}.oauthbearer.connections.max.reauth.ms": "3600000",
        f"{listener}.oauthbearer.sasl.oauthbearer.clock.skew.seconds": "1",
    }


def _done(futures: Mapping[Any, Future[Any]]) -> None:
    for future in futures.values():
        future.result(30)
