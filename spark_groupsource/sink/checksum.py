"""The row checksum for processes without the native library. Equal to the one in `native/_outlet.c`. Pure.

The checksum does not depend on row order. It detects rows that differ by accident, and is no defense against attackers.
"""

from __future__ import annotations

from collections.abc import Sequence

_FACTOR = 0x9E3779B97F4A7C15
_MASK = 2**64 - 1
_LANES = 4
_STRIDE = 8 * _LANES
"""The number of bytes that are mixed together: one word per lane."""

ANY_PARTITION = -1
"""The partition for a row that does not name one."""

Header = tuple[str, "bytes | None"]


def row_hash(topic: str, partition: int, key: bytes | None, value: bytes | None, headers: Sequence[Header] | None = None) -> int:
    """Return one row's 64-bit hash. A checksum is the sum of its rows' hashes, modulo 2^64."""
    found = _with_bytes(_FACTOR, topic.encode())
    found = _mixed(found, partition & _MASK)
    found = _with_bytes(_with_bytes(found, key), value)
    for name, content in headers or ():
        found = _with_bytes(_with_bytes(found, name.encode()), content)
    # Mix twice. After one mix, the top bit of the last word changes many hashes by the same amount, so if two rows swapped this
    # bit, the sum would stay the same.
    return _mixed(_mixed(found, 0), 0)


def added(checksum: int, one: int) -> int:
    """Return the checksum after adding one more row's hash."""
    return (checksum + one) & _MASK


def _with_bytes(found: int, content: bytes | None) -> int:
    if content is None:
        return _mixed(found, _MASK)
    found = _mixed(found, len(content))
    whole = len(content) - len(content) % _STRIDE
    if whole:
        lanes = [(found + lane) & _MASK for lane in range(_LANES)]
        for at in range(0, whole, 8):
            lane = at // 8 % _LANES
            lanes[lane] = _mixed(lanes[lane], int.from_bytes(content[at : at + 8], "little"))
        for each in lanes:
            found = _mixed(found, each)
    for at in range(whole, len(content), 8):
        found = _mixed(found, int.from_bytes(content[at : at + 8], "little"))
    return found


def _mixed(found: int, word: int) -> int:
    found = ((found ^ word) * _FACTOR) & _MASK
    return found ^ (found >> 32)
