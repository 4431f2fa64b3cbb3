"""Creates a client from finished settings with librdkafka's C API, and handles its log lines, errors and login tokens."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from spark_groupsource.brokers.client import librdkafka_log_of_tasks, tokens_of, why_not_made
from spark_groupsource.brokers.process_limits import save_address_space
from spark_groupsource.brokers.shared_token import SharedToken, Token
from spark_groupsource.kafka_settings.environment import resolved
from spark_groupsource.kafka_settings.tables import OAUTH_CALLBACK
from spark_groupsource.native.libraries import load_libraries
from spark_groupsource.native.structs import CONF_OK, CONSUMER, NO_ERROR, TEXT_BYTES, ErrorCallback, LogCallback, RefreshCallback

_LEVELS = (
    logging.CRITICAL,
    logging.CRITICAL,
    logging.CRITICAL,
    logging.ERROR,
    logging.WARNING,
    logging.INFO,
    logging.INFO,
    logging.DEBUG,
)
"""The Python log level for each syslog severity, which is what librdkafka uses."""


class NativeClient:
    """A librdkafka consumer or producer. Its log lines, errors and reports arrive in one queue, which its owner polls.

    Args:
        kind: `CONSUMER` or `PRODUCER`.
        client: The finished settings. They contain secrets.

    Raises:
        NativeUnavailable: This process cannot use librdkafka's C API.
        OptionError: librdkafka refuses the settings.
        AuthenticationFailed: `kafka.oauth_cb` returns no token.
        ProcessLimitReached: The process cannot get more memory or threads.
    """

    def __init__(self, kind: int, client: Mapping[str, str]) -> None:
        self._kafka = load_libraries().kafka
        client = resolved(client, reads=kind == CONSUMER)
        # The callback must not refer to `self`, because a reference cycle would keep the client from being freed.
        errors: dict[int, KafkaError] = {}
        self.errors = errors

        def keep(error: KafkaError) -> None:
            errors[error.code()] = error

        tokens, on_error = tokens_of(client, keep)

        def note(_handle: int | None, code: int, reason: bytes | None, _opaque: int | None) -> None:
            on_error(KafkaError(code, decoded(reason)))

        # Keep these, because librdkafka holds no references to the callbacks.
        self._note = ErrorCallback(note)
        self._refresh = refresh_callback(self._kafka, client[OAUTH_CALLBACK], tokens) if tokens is not None else None
        save_address_space()
        self._handle = self._new(kind, client)
        self._kafka.set_log_queue(self._handle, None)

    def connect(self, timeout_s: float) -> bool:
        """Wait for a broker connection, best effort, because other calls would wait longer for one.

        librdkafka looks up a coordinator or a leader only every 500 ms, and a new client drops its first connection, to the
        bootstrap server, once it has the list of brokers. For a request to a particular broker, it connects immediately, and the
        connection stays open no matter what the broker answers.

        Args:
            timeout_s: How long to wait, in seconds.

        Returns:
            Whether a broker answered in time.
        """
        queue = self._kafka.queue_new(self._handle)
        self._kafka.DescribeCluster(self._handle, None, queue)
        event = self._kafka.queue_poll(queue, int(timeout_s * 1000))
        if event is not None:
            self._kafka.event_destroy(event)
        self._kafka.queue_destroy(queue)
        return event is not None

    def abandon(self) -> None:
        """Leak the client in a forked child. There is nothing to do, because Python never frees librdkafka's client."""

    def _prepare(self, conf: int) -> None:
        """Set the callbacks that only this kind of client has."""

    def _new(self, kind: int, client: Mapping[str, str]) -> int:
        conf = self._kafka.conf_new()
        try:
            for name, value in client.items():
                if name != OAUTH_CALLBACK:
                    self._set(conf, name, value, client)
            # With this setting, the polling thread calls the log callback. Without it, librdkafka's own threads would run Python
            # code.
            self._set(conf, "log.queue", "true", client)
            self._kafka.conf_set_error_cb(conf, self._note)
            self._kafka.conf_set_log_cb(conf, _log_callback)
            self._prepare(conf)
            if self._refresh is not None:
                self._kafka.conf_set_oauthbearer_token_refresh_cb(conf, self._refresh)
                self._kafka.conf_enable_sasl_queue(conf, 1)
            text = ctypes.create_string_buffer(TEXT_BYTES)
            handle: int | None = self._kafka.new(kind, conf, text, TEXT_BYTES)
            if handle is None:
                raise why_not_made(decoded(text.value), client)
        except BaseException:
            self._kafka.conf_destroy(conf)
            raise
        # The client owns `conf` now.
        if self._refresh is not None:
            self._serve_refresh(handle, client)
        return handle

    def _serve_refresh(self, handle: int, client: Mapping[str, str]) -> None:
        """Make librdkafka ask for tokens on its own thread, so that it does so even while the client is not in use."""
        refused = self._kafka.sasl_background_callbacks_enable(handle)
        if refused is not None:
            text = decoded(self._kafka.error_string(refused))
            self._kafka.error_destroy(refused)
            self._kafka.destroy(handle)
            raise why_not_made(text, client)

    def _set(self, conf: int, name: str, value: str, client: Mapping[str, str]) -> None:
        text = ctypes.create_string_buffer(TEXT_BYTES)
        if self._kafka.conf_set(conf, name.encode(), value.encode(), text, TEXT_BYTES) != CONF_OK:
            raise why_not_made(decoded(text.value), client)

    def _raise_for(self, code: int) -> None:
        if code != NO_ERROR:
            raise KafkaException(KafkaError(code, decoded(self._kafka.err2str(code))))


def decoded(reason: bytes | None) -> str:
    """Decode a string from librdkafka. Returns an empty string for `None`."""
    return (reason or b"").decode("utf-8", "replace")


def _to_log(_handle: int | None, level: int, facility: bytes, line: bytes) -> None:
    severity = _LEVELS[level] if 0 <= level < len(_LEVELS) else logging.DEBUG
    librdkafka_log_of_tasks.log(severity, "%s: %s", decoded(facility), decoded(line))


_log_callback = LogCallback(_to_log)


log = logging.getLogger(__name__)


def refresh_callback(kafka: Any, name: str, tokens: SharedToken) -> Any:
    """Return the callback that provides tokens to librdkafka.

    librdkafka asks for a token when a client is created, and again after four fifths of the token's lifetime. It asks on its own
    thread, so tokens are renewed even while a task waits for Spark, or no task uses the client.

    Args:
        kafka: librdkafka's functions. The callback holds no reference to a client.
        name: The name of the token function.
        tokens: Returns the tokens.

    Returns:
        A `RefreshCallback`. librdkafka does not hold a reference to it.
    """

    def refresh(handle: int, _config: bytes | None, _opaque: int | None) -> None:
        # Always report either a token or a failure, because librdkafka asks again only after one of them.
        try:
            failure = _refused(kafka, handle, tokens())
        except BaseException as error:  # noqa: BLE001 -- ctypes would print its text, which may contain a token
            failure = f"the function raised {type(error).__name__}"
        if failure is not None:
            log.warning("kafka.oauth_cb = %r: %s. librdkafka will ask for a token again in 10 s.", name, failure)
            kafka.oauthbearer_set_token_failure(handle, f"kafka.oauth_cb: {failure}".encode())

    return RefreshCallback(refresh)


def _refused(kafka: Any, handle: int, token: Token) -> str | None:
    """Pass a token to librdkafka, and return why librdkafka refuses it, or None if it accepts it."""
    texts = [text.encode() for pair in token.extensions.items() for text in pair]
    # Do not show librdkafka's own message, because it may quote the token.
    unshown = ctypes.create_string_buffer(TEXT_BYTES)
    code = kafka.oauthbearer_set_token(
        handle,
        token.value.encode(),
        int(token.expiry * 1000),
        token.principal.encode(),
        (ctypes.c_char_p * len(texts))(*texts),
        len(texts),
        unshown,
        TEXT_BYTES,
    )
    return None if code == NO_ERROR else "librdkafka rejected the token, which may have expired in the meantime"
