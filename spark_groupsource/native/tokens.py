"""Tokens of `kafka.oauth_cb` for a native consumer.

librdkafka asks for a token when a consumer is made, and again when four fifths of the token's time are over. It asks on a thread
of its own. So the tokens of a consumer are renewed while a task waits for Spark, and while no task uses the consumer.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Mapping
from typing import Any

from spark_groupsource.brokers.oauth_callback import TokenCallback
from spark_groupsource.brokers.shared_token import Token
from spark_groupsource.kafka_settings.tables import OAUTH_CALLBACK
from spark_groupsource.native.structs import NO_ERROR, TEXT_BYTES, RefreshCallback

log = logging.getLogger(__name__)


def refresh_callback(kafka: Any, client: Mapping[str, str], tokens: TokenCallback) -> Any:
    """Return the callback that gives tokens to librdkafka.

    Args:
        kafka: The functions of librdkafka. The callback holds no reference to a consumer.
        client: The settings of the consumer, with the name of the function.
        tokens: Has the tokens.

    Returns:
        A `RefreshCallback`. librdkafka does not hold a reference to it.
    """
    config = client.get("sasl.oauthbearer.config")

    def refresh(handle: int, _config: bytes | None, _opaque: int | None) -> None:
        # librdkafka asks again only after it has got a token or a failure.
        try:
            failure = _refused(kafka, handle, tokens(config))
        except BaseException as error:  # noqa: BLE001 -- ctypes would print its text, which may hold a token
            failure = f"the function raised {type(error).__name__}"
        if failure is not None:
            log.warning("kafka.oauth_cb = %r: %s. librdkafka asks for a token again in 10 s.", client[OAUTH_CALLBACK], failure)
            kafka.oauthbearer_set_token_failure(handle, f"kafka.oauth_cb: {failure}".encode())

    return RefreshCallback(refresh)


def _refused(kafka: Any, handle: int, token: Token) -> str | None:
    """Give a token to librdkafka; return why it refuses it, None if it does not."""
    texts = [text.encode() for pair in token.extensions.items() for text in pair]
    # librdkafka's own text may quote the token, so it is not shown.
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
    return None if code == NO_ERROR else "librdkafka does not accept the token, which may have expired meanwhile"
