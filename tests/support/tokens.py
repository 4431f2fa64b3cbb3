"""An OAuth server that issues tokens to clients with the right secret, and the callback of a user who asks it for one."""

from __future__ import annotations

import base64
import json
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256

from spark_groupsource import oauth_callback

_KEY_ID = "test"

AUDIENCE, ISSUER = "wonderland", "the-queen"
"""Who the tokens are for, and from. Brokers from Kafka 4.4 on have to check both."""


class TokenServer:
    """Issues tokens (RFC 6749, client credentials) as JWTs (RFC 7519, RS256) whose `sub` is the client's id."""

    def __init__(self, secrets: dict[str, str], url: str) -> None:
        self.url = url
        self.secrets = secrets
        self.issued: list[str] = []
        self.valid_s = 3600
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def jwks(self) -> str:
        """Return the public key, as a broker reads it (RFC 7517)."""
        public = self._key.public_key().public_numbers()
        numbers = {"n": _base64(public.n.to_bytes(256, "big")), "e": _base64(public.e.to_bytes(3, "big"))}
        return json.dumps({"keys": [{"kty": "RSA", "use": "sig", "alg": "RS256", "kid": _KEY_ID, **numbers}]})

    def token(self, client_id: str) -> str:
        """Return a new token of the client."""
        now = int(time.time())
        head = {"alg": "RS256", "typ": "JWT", "kid": _KEY_ID}
        claims = {"sub": client_id, "aud": AUDIENCE, "iss": ISSUER, "iat": now, "exp": now + self.valid_s, "scope": "kafka"}
        text = ".".join(_base64(json.dumps(part).encode()) for part in (head, claims))
        token = f"{text}.{_base64(self._key.sign(text.encode(), padding.PKCS1v15(), SHA256()))}"
        self.issued.append(token)
        return token


@contextmanager
def token_server(secrets: dict[str, str]) -> Iterator[TokenServer]:
    """Serve tokens on 127.0.0.1 for these clients, by id and secret."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            kind, _, credentials = self.headers.get("Authorization", "").partition(" ")
            client_id, _, secret = base64.b64decode(credentials).decode().partition(":") if kind == "Basic" else ("", "", "")
            if client_id in secrets and secrets[client_id] == secret:
                self._answer(200, {"access_token": server.token(client_id), "token_type": "Bearer", "expires_in": server.valid_s})
            else:
                self._answer(401, {"error": "invalid_client", "error_description": "client authentication failed"})

        def _answer(self, status: int, body: dict[str, Any]) -> None:
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 -- the base class's name
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        server = TokenServer(secrets, f"http://127.0.0.1:{http.server_port}/token")
        threading.Thread(target=http.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            http.shutdown()


@oauth_callback
def callback(config: str) -> tuple[str, float]:
    """Return a token, as a user's `kafka.oauth_cb`; `config` is `kafka.sasl.oauthbearer.config`: server, id and secret."""
    url, client_id, secret = config.split(" ")
    basic = base64.b64encode(f"{client_id}:{secret}".encode()).decode()
    request = urllib.request.Request(  # noqa: S310 -- a test's own server
        url, b"grant_type=client_credentials", {"Authorization": f"Basic {basic}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
            body = json.load(answer)
    except urllib.error.HTTPError as refused:
        refused.close()
        # As careless as a user's code may be: the secret is in the message.
        raise PermissionError(f"{url} does not take {client_id}:{secret}") from refused
    # As in the token, which has whole seconds.
    return body["access_token"], int(time.time()) + body["expires_in"]


@oauth_callback
def first_only(config: str) -> tuple[str, float]:
    """Return a token to the thread that makes a client. librdkafka's threads ask for later ones, and get none."""
    token, expiry = callback(config)
    if threading.current_thread() is not threading.main_thread():
        raise PermissionError(f"no more than {token}")
    return token, expiry


@oauth_callback
def with_extensions(config: str) -> tuple[str, float, str, dict[str, str]]:
    """Return a token with a principal and with two extensions."""
    return (*callback(config), "reader", {"traceId": "a b", "tenant": "wonderland"})


@oauth_callback
def exits(config: str) -> tuple[str, float]:
    """End the process, with the token as its last word."""
    sys.exit(callback(config)[0])


@oauth_callback
def forged(config: str) -> tuple[str, float]:
    """Return a token that is signed by nobody that the broker trusts."""
    token, expiry = callback(config)
    return token[:-8] + "AAAAAAAA", expiry


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
