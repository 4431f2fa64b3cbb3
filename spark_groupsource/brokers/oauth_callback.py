"""`kafka.oauth_cb`: tokens from a function of the user. The option names it as `package.module:function`.

The name is sent to the executors with the other settings. Each process that makes a client imports the function. It is called as
confluent-kafka calls an `oauth_cb`: with the text of `kafka.sasl.oauthbearer.config`, or None. It returns a token and its expiry
in seconds since 1970. A principal and a dict of extensions may follow.
"""

from __future__ import annotations

import importlib
import logging
import time
from collections.abc import Callable
from typing import Any

from spark_groupsource.errors import AuthenticationFailed, OptionError

log = logging.getLogger(__name__)

RETRY_S = 10.0
"""Seconds after a failure until librdkafka asks for a token again, if the last one has expired."""

Token = tuple[Any, ...]


def function_named(name: str) -> Callable[[str | None], object]:
    """Import the function `package.module:function`.

    Raises:
        OptionError: It cannot be imported here, or it is not callable.
    """
    module, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for attribute in path.split("."):
            found = getattr(found, attribute)
    except (ImportError, AttributeError) as error:
        raise OptionError(
            f"kafka.oauth_cb = {name!r}: it cannot be imported here: {error}. The driver and every executor need the module."
        ) from None
    except Exception as error:  # noqa: BLE001 -- any error of a user's module; its text may hold a secret
        raise OptionError(f"kafka.oauth_cb = {name!r}: importing its module raised {type(error).__name__}.") from None
    if not callable(found):
        raise OptionError(f"kafka.oauth_cb = {name!r}: it is a {type(found).__name__}, and a function is expected.")
    function: Callable[[str | None], object] = found
    return function


class TokenCallback:
    """What confluent-kafka calls for a token.

    The constructor fetches the first token. Later ones are fetched on librdkafka's threads, where an exception would be lost or
    come out of an unrelated call. So a failure there is a warning, and the last token is returned once more. Until that token
    expires everything works. After that the brokers refuse it, and librdkafka asks again.

    No text holds a token. The function's own exception may hold one, so its text is never shown.
    """

    def __init__(self, name: str, config: str | None) -> None:
        """Import the function and fetch the first token.

        Args:
            name: The function, as `package.module:function`.
            config: The value of `sasl.oauthbearer.config`.

        Raises:
            OptionError: The function does not exist.
            AuthenticationFailed: The function returns no token.
        """
        self._name = name
        self._function = function_named(name)
        self._token = self._fetched(config)
        self._is_new = True

    def __call__(self, config: str | None) -> Token:
        """Return the first token, or a new one."""
        if self._is_new:
            self._is_new = False
            return self._token
        try:
            self._token = self._fetched(config)
        except AuthenticationFailed as failed:
            log.warning("%s The last token is used once more.", failed)
            return (self._token[0], max(self._token[1], time.time() + RETRY_S), *self._token[2:])
        return self._token

    def _fetched(self, config: str | None) -> Token:
        try:
            token = self._function(config)
        except Exception as error:  # noqa: BLE001 -- any error of a user's function
            raise self._failed(f"the function raised {type(error).__name__}") from None
        match token:
            case (str(), int() | float() as expiry, *more) if isinstance(token, tuple) and len(more) <= 2:
                if expiry <= time.time():
                    raise self._failed("its token has expired already, by the expiry that comes with it (seconds since 1970)")
                return token
        raise self._failed("it gives no tuple of a token (str) and its expiry in seconds since 1970")

    def _failed(self, reason: str) -> AuthenticationFailed:
        return AuthenticationFailed(f"kafka.oauth_cb = {self._name!r}: {reason}.")
