"""Gets login tokens from the function that the user names in the `kafka.oauth_cb` option, as `package.module:function`.

The driver sends the name to the executors with the other settings, and each process that creates a client imports the function.
The function is called like confluent-kafka's `oauth_cb`: with the value of `kafka.sasl.oauthbearer.config`, or None. It returns a
token and its expiry in seconds since 1970, optionally followed by a principal and a dict of extensions.

Permission to set options is not permission to run code. So a function is called only if its author has marked it with
`@oauth_callback`, and looking it up runs no other code in its module. An import runs a module's top-level code, so standard
library modules, which have no marked functions, are not even imported.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import time
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any, TypeVar

from spark_groupsource.brokers.shared_token import CallFailed, SharedToken, Token
from spark_groupsource.errors import AuthenticationFailed, OptionError

Function = TypeVar("Function", bound=Callable[..., object])

_MARK = "__spark_groupsource_oauth_callback__"
"""The attribute that marks a function. Its value is the function, so a wrapper created with `functools.wraps` is not marked."""

_LATEST_EXPIRY_S = 1e11
"""A time in the year 5138. An expiry in milliseconds, which some libraries return, is a larger number."""

_VALUE = re.compile(r"[\x21-\x7e \t\r\n]*")
_KEY = re.compile(r"[A-Za-z]+")
_RESERVED_KEY = "auth"
"""What RFC 7628, section 3.1, allows in tokens and extensions, and the reserved key that it forbids. librdkafka would refuse
anything else with a message that quotes the token."""


def oauth_callback(function: Function) -> Function:
    """Mark a function that `kafka.oauth_cb` may name. No other function is ever called.

    Args:
        function: A function defined with `def`. For a static method, write this decorator below `@staticmethod`.

    Raises:
        TypeError: `function` is not such a function.
    """
    if not isinstance(function, FunctionType):
        raise TypeError(f"@oauth_callback is only for functions defined with def, but this is a {type(function).__name__}.")
    setattr(function, _MARK, function)
    return function


def function_named(name: str) -> Callable[[str | None], object]:
    """Import the function named `package.module:function`. The import runs only its module's top-level code.

    Raises:
        OptionError: The function cannot be imported in this process, or is not marked.
    """
    module, _, path = name.partition(":")
    if module.partition(".")[0] in sys.stdlib_module_names:
        raise _not_marked(name, "Python's own modules have no functions with @oauth_callback")
    try:
        found: Any = importlib.import_module(module)
        for attribute in path.split("."):
            if not isinstance(found, ModuleType | type):
                raise AttributeError(f"{attribute} belongs to a {type(found).__name__}, not to a module or a class")
            # Look the attribute up statically, because a module's or class's `__getattr__` would run code.
            found = inspect.getattr_static(found, attribute)
            found = found.__func__ if isinstance(found, staticmethod) else found
    except (ImportError, AttributeError) as error:
        raise OptionError(
            f"kafka.oauth_cb = {name!r}: it cannot be imported here: {error}. The driver and every executor need the module."
        ) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 -- any error from a user's module; its message may contain a secret
        raise OptionError(
            f"kafka.oauth_cb = {name!r}: importing its module raised {type(error).__name__}. Fix the module."
        ) from None
    if not isinstance(found, FunctionType):
        raise _not_marked(name, f"this is a {type(found).__name__}, but it must be a function")
    function: Callable[[str | None], object] = found
    mark: object = vars(found).get(_MARK)
    if mark is not found:
        raise _not_marked(name, "this function does not have the decorator, so it will not be called")
    return function


def _not_marked(name: str, reason: str) -> OptionError:
    return OptionError(
        f"kafka.oauth_cb = {name!r}: {reason}. Write @oauth_callback above your function's def (from spark_groupsource import "
        "oauth_callback)."
    )


def token_callback(name: str, config: str | None) -> SharedToken:
    """Return the callback that gives tokens to a librdkafka client. Clients with the same function and configuration share it.

    The callback already has a valid token. librdkafka asks for later tokens on its own threads, where an exception would be lost,
    or would be raised by an unrelated call. So a failure there is only a warning.

    No message contains a token. An exception from the user's function may contain one, so its message is never shown.

    Args:
        name: The function, as `package.module:function`. It is called if this process has no valid token from it.
        config: The value of `sasl.oauthbearer.config`.

    Raises:
        OptionError: The function does not exist, or is not marked.
        AuthenticationFailed: The function returns no token.
    """
    function = function_named(name)
    shared = _SHARED.setdefault((function, config), SharedToken(lambda: _fetched(name, function, config)))
    shared.valid()
    return shared


_SHARED: dict[tuple[Callable[[str | None], object], str | None], SharedToken] = {}
"""This process's tokens, by callback and configuration. A forked process starts with its parent's tokens."""


def _fetched(name: str, function: Callable[[str | None], object], config: str | None) -> Token:
    """Call the function and return its token.

    Raises:
        CallFailed: The function raised an error, for example because its server does not answer.
        AuthenticationFailed: The function returned no token.
    """
    option = f"kafka.oauth_cb = {name!r}:"
    try:
        returned = function(config)
    # A function that exits must not end a task or a query without an error.
    except (Exception, SystemExit) as error:  # noqa: BLE001 -- any error from a user's function
        raise CallFailed(f"{option} the function raised {type(error).__name__}.") from None
    match returned:
        case (str(), int() | float(), *more) if isinstance(returned, tuple) and len(more) <= 2:
            token = Token(*returned)
        case _:
            raise AuthenticationFailed(
                f"{option} the function must return a tuple of a token (str) and its expiry in seconds since 1970."
            )
    wrong = _what_is_wrong(token)
    if wrong is not None:
        raise AuthenticationFailed(f"{option} {wrong}.")
    return token


def _what_is_wrong(token: Token) -> str | None:
    """Return why librdkafka would refuse or misunderstand the token, or None if it accepts it.

    After some of these mistakes, confluent-kafka would only write a log line, and never ask for a token again.
    """
    if not token.value or not _VALUE.fullmatch(token.value):
        return "the function returned a token that is empty, or contains characters that are not allowed in a token"
    if not token.expiry <= _LATEST_EXPIRY_S:  # written this way, NaN is refused, too
        return "the expiry that the function returned is not a time in seconds since 1970; divide milliseconds by 1000"
    if token.expiry <= time.time():
        return "the function returned a token that has already expired, according to its expiry (seconds since 1970)"
    if not isinstance(token.principal, str) or not token.principal.isprintable():
        return "the third value that the function returned, the principal, must be a string without control characters"
    if not isinstance(token.extensions, dict):
        return "the fourth value that the function returned, the extensions, must be a dict"
    for key, value in token.extensions.items():
        if not isinstance(key, str) or not _KEY.fullmatch(key) or key == _RESERVED_KEY:
            return "the names of the token's extensions may contain only the letters A to Z and a to z, and must not be 'auth'"
        if not isinstance(value, str) or not _VALUE.fullmatch(value):
            return "the values of the token's extensions must be strings of visible ASCII characters and spaces"
    return None
