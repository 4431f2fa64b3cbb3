"""Shares one login token among all clients in this process that have the same callback and configuration.

A client asks for a token when it is created, and again after four fifths of the token's lifetime. The callback is called for the
first client, and later by the first thread that asks after four fifths of the lifetime.

There is no lock, because a signal handler may create a client. The token is an immutable value behind one reference. Only a
successful call replaces it, and only if no other call has replaced it in the meantime. Before a thread calls the callback, it
postpones the next call, so that other threads use the token that is still valid, or wait for the first token. If two threads
check at the same moment, both call the callback, which is harmless.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import NamedTuple, NoReturn

from spark_groupsource.errors import AuthenticationFailed

log = logging.getLogger(__name__)

RENEWED_AT = 0.8
"""The fraction of a token's lifetime after which a new token is fetched. librdkafka asks for one after the same fraction."""

FIRST_TOKEN_S = 10.0
"""How long a client without a valid token keeps calling the callback after a failure, in seconds."""

CALL_S = 10.0
"""How long a call may take before another thread also calls the callback, in seconds."""

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
"""The pause after the first failed call, and the longest pause. Each pause is twice as long as the one before."""

EXPIRED_PAUSE_S = 5.0
"""The longest pause while there is no valid token. It is short, because no client can be created in the meantime."""

_LOOK_S = 0.01
"""How often a thread checks for the first token while another thread fetches it, in seconds."""

_NEW_S = 10.0
"""If brokers refuse a token that is younger than this, its age is not the reason, so they would also refuse a new one."""


class Token(NamedTuple):
    """A token in the form that confluent-kafka accepts. Its `repr` does not show the token, and it cannot be pickled."""

    value: str
    expiry: float
    """When the token expires, in seconds since 1970."""
    principal: str = ""
    extensions: dict[str, str] = {}  # noqa: RUF012 -- nothing changes it, and confluent-kafka accepts only a dict

    def __repr__(self) -> str:
        """Return a string without the token."""
        return f"Token(expiry={self.expiry})"

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled, so that a token is never sent or stored."""
        raise TypeError("A login token cannot be pickled: each process fetches its own.")


class CallFailed(Exception):
    """A call to the callback failed, but a later call may succeed. The message contains no secrets."""


class _Kept(NamedTuple):
    """A token, and the time when it was fetched."""

    token: Token | None
    fetched_at: float
    """When the token was fetched, in seconds since 1970."""


class SharedToken:
    """The token from one callback with one configuration. Any thread may call any method.

    Args:
        fetch: Calls the callback. Raises CallFailed, or AuthenticationFailed if another call would not help.
        clock: Returns seconds since 1970.
        sleep: Waits for a number of seconds.
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
        """How many calls have begun since the token was fetched. Each has failed or is still running."""

    def valid(self) -> Token:
        """Return a token that has not expired. If there is none, keep calling the callback for a few seconds.

        Raises:
            AuthenticationFailed: The callback returned no token.
        """
        give_up_at = self._clock() + FIRST_TOKEN_S
        failure: AuthenticationFailed | None = None
        while True:
            try:
                self._renew()
            except CallFailed as failed:
                failure = AuthenticationFailed(str(failed))
            token = self._kept.token
            if token is not None and self._clock() < token.expiry:
                return token
            if failure is not None and self._call_at >= give_up_at:
                raise failure from None
            self._sleep(_LOOK_S)

    def __call__(self, _config: str | None = None) -> Token:
        """Return the newest token for librdkafka, with an expiry that makes librdkafka ask again when the next call is due.

        If no new token can be fetched, return the last one, even if it has expired. librdkafka would report a failure to its
        client, and a task or a query could fail while its token is still valid.

        Raises:
            AuthenticationFailed: There has never been a token, and the callback returned none.
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
        """Make the next client fetch a new token, because the brokers have refused this one before its expiry."""
        now = self._clock()
        # While calls fail, a new token is due anyway, after a pause that a refusal must not shorten.
        if not self._calls and now - self._kept.fetched_at > _NEW_S:
            self._call_at = min(self._call_at, now)

    def _renew(self) -> None:
        """Call the callback if a call is due. If the call fails, warn and keep the last token, as long as it is valid."""
        kept, now = self._kept, self._clock()
        if now < self._call_at:
            return
        # Set the time of the next call before this call, so that other threads do not call the callback, too.
        self._call_at = now + CALL_S
        self._calls += 1
        try:
            token = self._fetch()
        except (CallFailed, AuthenticationFailed) as failed:
            if self._kept is not kept:
                return  # this call took so long that a later call has succeeded in the meantime
            now = self._clock()
            left_s = 0.0 if kept.token is None else kept.token.expiry - now
            longest_s = LONGEST_PAUSE_S if left_s > 0 else EXPIRED_PAUSE_S
            pause_s = min(longest_s, FIRST_PAUSE_S * 2 ** min(self._calls - 1, 10))
            self._call_at = now + pause_s
            if kept.token is None:
                raise
            state = f"is valid for another {left_s:.0f} s" if left_s > 0 else "has expired"
            log.warning("%s The last token %s. The function will be called again in %.0f s.", failed, state, pause_s)
            if left_s <= 0:
                raise
        else:
            if self._kept is kept:
                now = self._clock()
                self._kept = _Kept(token, now)
                self._call_at = now + RENEWED_AT * (token.expiry - now)
                self._calls = 0
