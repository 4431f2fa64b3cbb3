"""Tokens of a single sink query, for tests of the decisions based on them."""

from __future__ import annotations

from spark_groupsource.sink.token import BatchToken, Token, Written

RUN = "0b5dc8e3-9e4f-4c51-a8f6-000000000000"
QUERY = "5e0bd5ce-5a4a-4d49-a9e1-f1d5a8f9a1d5"
ROWS = Written(10, 0xABC)


def token(batch: int) -> Token:
    """Return the token for a task's last write."""
    return Token(QUERY, batch, ROWS, RUN)


def driver(batch: int) -> BatchToken:
    """Return what the driver knows of the last micro-batch."""
    return BatchToken(QUERY, batch, 2, 20, RUN)
