"""One login token for all clients of this process that have the same callback and configuration.

A client asks for the token when it is made, and again when four fifths of the token's life are over. Both are answered here. The
callback is called for the first client, and then by whichever thread asks first once four fifths of the life are over.

There is no lock, because a signal handler may make a client. The token is an immutable value behind one reference, which only a
call that succeeds replaces, and only if it is still what it was when the call began. A thread that is about to call the callback
first moves the time of the next call. So threads that ask meanwhile get the token that is still valid, or wait for the first one.
If two threads look at the same moment, both call the callback, which does no harm.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import NamedTuple, NoReturn

from spark_groupsource.errors import AuthenticationFailed

log = logging.getLogger(__name__)

RENEWED_AT = 0.8
"""Which part of a token's life passes before another one is fetched. librdkafka asks for a token at the same part."""

FIRST_TOKEN_S = 10.0
"""For how long a client without a valid token calls the callback again after a failure."""

CALL_S = 10.0
"""How long a call may take before another thread calls, too."""

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
"""The pause after the first failed call, and the longest one. Each is twice as long as the one before."""

EXPIRED_PAUSE_S = 5.0
"""The longest pause while there is no valid token: no client can be made in this time."""

_LOOK_S = 0.01
"""How often a thread looks for the first token that another thread fetches."""

_NEW_S = 10.0
"""A token that brokers refuse in its first seconds is not refused for its age, so another one would be refused as well."""


class Token(NamedTuple):
    """A token, as confluent-kafka takes it. Its repr does not show it, and it cannot be pickled."""

    value: str
    expiry: float
    """Seconds since 1970."""
    principal: str = ""
    extensions: dict[str, str] = {}  # noqa: RUF012 -- nothing changes it, and confluent-kafka takes a dict only

    def __repr__(self) -> str:
        """Return a text without the token."""
        return f"Token(expiry={self.expiry})"

    def __reduce__(self) -> NoReturn:
        """Refuse to be sent or stored."""
        raise TypeError("A login token is not pickled: each process fetches its own.")


class CallFailed(Exception):
    """A call of the callback failed, and a later one may succeed. The text holds no secret."""


class _Kept(NamedTuple):
    """A token, and when it was fetched."""

    token: Token | None
    fetched_at: float
    """Seconds since 1970."""


class SharedToken:
    """The token of one callback with one configuration. Any thread may call each method.

    Args:
        fetch: Calls the callback. Raises CallFailed, or AuthenticationFailed if another call would not help.
        clock: Returns seconds since 1970.
        sleep: Waits for so many seconds.
    """

    def __init__(
        self,
        fetch: Callable[[], Token],
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._fetch = fetch
        self._clock = clock
        self._sleep = sleep
        self._kept = _Kept(None, 0.0)
        self._call_at = 0.0
        """When the callback may be called again, in seconds since 1970."""
        self._calls = 0
        """How many calls have begun since the token was fetched. Each has failed, or is under way."""

    def valid(self) -> Token:
        """Return a token that has not expired. While there is none, the callback is called again for a few seconds.

        Raises:
            AuthenticationFailed: The callback gave no token.
        """
        until = self._clock() + FIRST_TOKEN_S
        failure: AuthenticationFailed | None = None
        while True:
            try:
                self._renew()
            except CallFailed as failed:
                failure = AuthenticationFailed(str(failed))
            token = self._kept.token
            if token is not None and self._clock() < token.expiry:
                return token
            if failure is not None and self._call_at >= until:
                raise failure from None
            self._sleep(_LOOK_S)

    def newest(self) -> Token:
        """Return the newest token for librdkafka, which is told the expiry at which it asks again when another call is due.

        If no new one can be fetched, the last one is returned, even if it has expired: librdkafka would report a failure to its
        client otherwise, and a task or a query could end while its token is still valid.

        Raises:
            AuthenticationFailed: There was never a token, and the callback gave none.
        """
        try:
            self._renew()
        except (CallFailed, AuthenticationFailed) as failed:
            if self._kept.token is None:
                raise AuthenticationFailed(str(failed)) from None
        token = self._kept.token or self.valid()
        now = self._clock()
        return token._replace(expiry=now + max(self._call_at - now, FIRST_PAUSE_S) / RENEWED_AT)

    def refused(self) -> None:
        """Fetch another token for the next client: the brokers have refused this one, although it has not expired."""
        now = self._clock()
        # While calls fail, another token is due anyway, after a pause that a refusal does not make shorter.
        if not self._calls and now - self._kept.fetched_at > _NEW_S:
            self._call_at = min(self._call_at, now)

    def _renew(self) -> None:
        """Call the callback if a call is due. If it fails, the last token stays, with a warning while it is valid."""
        kept, now = self._kept, self._clock()
        if now < self._call_at:
            return
        # Before the call, so that other threads do not call as well.
        self._call_at = now + CALL_S
        self._calls += 1
        try:
            token = self._fetch()
        except (CallFailed, AuthenticationFailed) as failed:
            if self._kept is not kept:
                return  # this call took so long that a later one was made, and has succeeded
            now = self._clock()
            left_s = 0.0 if kept.token is None else kept.token.expiry - now
            longest_s = LONGEST_PAUSE_S if left_s > 0 else EXPIRED_PAUSE_S
            pause_s = min(longest_s, FIRST_PAUSE_S * 2 ** min(self._calls - 1, 10))
            self._call_at = now + pause_s
            if kept.token is None:
                raise
            state = f"is valid for another {left_s:.0f} s" if left_s > 0 else "has expired"
            log.warning("%s The last token %s. The function is called again in %.0f s.", failed, state, pause_s)
            if left_s <= 0:
                raise
        else:
            if self._kept is kept:
                now = self._clock()
                self._kept = _Kept(token, now)
                self._call_at = now + RENEWED_AT * (token.expiry - now)
                self._calls = 0
