"""Logs of a broker that are written by hand: record formats and batches that no client of today writes."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from devtools.broker import Cluster
from tests.conftest import KEEP_ALL, NOT_FENCED

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
"""Codecs, as bits of a batch's attributes."""

LOG_APPEND_TIME = 8
"""The bit of a batch's attributes for a time that the broker has set."""


class Old(NamedTuple):
    """A record of message format 0 or 1. Format 0 has no time."""

    magic: int
    key: bytes | None
    value: bytes | None
    time_ms: int = -1


def old_message(offset: int, record: Old, attributes: int = 0) -> bytes:
    """Return one record of format 0 or 1 (`LegacyRecord` of Kafka) as it stands in a log."""
    body = struct.pack(">bb", record.magic, attributes)
    if record.magic > 0:
        body += struct.pack(">q", record.time_ms)
    for part in (record.key, record.value):
        body += struct.pack(">i", -1 if part is None else len(part)) + (part or b"")
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def old_batch(first: int, codec: int, records: list[Old], append_time_ms: int | None = None) -> bytes:
    """Return records of format 0 or 1 that are compressed together: one record around them, with the offset of the last one."""
    magic = records[0].magic
    # Format 1 has relative offsets inside (KIP-31).
    inner = b"".join(old_message(at if magic else first + at, record) for at, record in enumerate(records))
    time_ms = append_time_ms if append_time_ms is not None else max(record.time_ms for record in records)
    attributes = codec | (LOG_APPEND_TIME if append_time_ms is not None else 0)
    return old_message(first + len(records) - 1, Old(magic, None, _compressed(codec, inner), time_ms), attributes)


def batch(values: Sequence[bytes], codec: int) -> bytes:
    """Return records of format 2 in one batch, at the begin of a log. As of Java's producer, it does not say how large it is."""
    records = []
    for at, value in enumerate(values):
        # No attributes, the time of the batch, its place in it, no key; no headers behind it.
        record = b"\0\0" + _varint(at) + _varint(-1) + _varint(len(value)) + value + b"\0"
        records += [_varint(len(record)), record]
    last = len(values) - 1
    body = struct.pack(">hiqqqhii", codec, last, 0, 0, -1, -1, -1, len(values)) + _compressed(codec, b"".join(records))
    return struct.pack(">qiibI", 0, len(body) + 9, 0, 2, _crc32c(body)) + body


def write_logs(cluster: Cluster, logs: Mapping[str, Iterable[bytes]]) -> None:
    """Put logs in the place of those of topics. The cluster's only node is stopped, and starts again.

    Args:
        cluster: A cluster with a data folder of its own.
        logs: By topics with one partition that is empty: what each log has, in the order of the offsets.
    """
    (node,) = cluster.nodes
    node.stop()
    for topic, messages in logs.items():
        (folder,) = node.log.parent.glob(f"data/**/{topic}-0")
        for file in folder.glob("0*"):
            file.unlink()
        (folder / f"{0:020}.log").write_bytes(b"".join(messages))
    node.start()


@contextmanager
def broker_with_old_records(folder: Path) -> Iterator[Cluster]:
    """Start a broker with a data folder, whose topic `old` has OLD_RECORDS in its only partition."""
    with Cluster(data_dir=folder, config={**NOT_FENCED, **KEEP_ALL}) as cluster:
        cluster.create_topic("old")
        write_logs(cluster, {"old": _old_log()})
        yield cluster


TIME_MS = 1_400_000_000_000

OLD_RECORDS = [
    Old(0, b"k", b"v"),
    Old(0, None, None),
    *(Old(0, b"k%d" % codec, b"v" * 100) for codec in (GZIP, SNAPPY, LZ4) for _ in range(3)),
    Old(1, b"k", b"v", TIME_MS),
    Old(1, None, b"", -1),
    *(Old(1, b"k%d" % codec, b"v" * 100, TIME_MS + at) for codec in (GZIP, SNAPPY, LZ4) for at in range(3)),
    *(Old(1, b"k", b"w", TIME_MS) for _ in range(2)),
    # librdkafka does not say that this one has a time.
    Old(1, b"k", b"v", 0),
]

APPENDED_MS = TIME_MS + 1_000_000


def _old_log() -> Iterator[bytes]:
    """OLD_RECORDS: of each format two alone, and three in each codec. Before the last come two with the time of the broker."""
    for at in (0, 1, 11, 12, 24):
        yield old_message(at, OLD_RECORDS[at])
        for number, codec in enumerate((GZIP, SNAPPY, LZ4) if at in (1, 12) else ()):
            first = at + 1 + 3 * number
            yield old_batch(first, codec, OLD_RECORDS[first : first + 3])
        if at == 12:
            yield old_batch(22, GZIP, OLD_RECORDS[22:24], APPENDED_MS)


def _compressed(codec: int, content: bytes) -> bytes:
    if codec == SNAPPY:
        # The framing of snappy-java, which Kafka's Java clients write.
        block: bytes = pa.compress(content, codec="snappy", asbytes=True)
        return b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, len(block)) + block
    if codec == LZ4:
        # A frame with one block that is not compressed; pyarrow's blocks depend on each other, which Java refuses.
        return bytes.fromhex("04224d18604082") + struct.pack("<I", len(content) | 1 << 31) + content + bytes(4)
    if codec == 0:
        return content
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "gzip" if codec == GZIP else "zstd") as stream:
        stream.write(content)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def _varint(number: int) -> bytes:
    number = 2 * number if number >= 0 else -2 * number - 1
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def _crc32c(content: bytes) -> int:
    found = 0xFFFFFFFF
    for byte in content:
        found = _CRC32C[(found ^ byte) & 255] ^ found >> 8
    return found ^ 0xFFFFFFFF


def _crc32c_of(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_CRC32C = [_crc32c_of(byte) for byte in range(256)]
