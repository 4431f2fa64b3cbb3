"""Broker logs written by hand, with record formats and batches that current clients no longer write."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from devtools.broker import Cluster
from devtools.broker.node import Node
from tests.conftest import KEEP_ALL, NOT_FENCED

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
"""Codecs, as bits of a batch's attributes."""

LOG_APPEND_TIME = 8
"""The bit of a batch's attributes for a time that the broker has set."""

CONTROL = 32
"""The bit of a batch's attributes for the marker of a transaction."""

ATTRIBUTES, LAST_OFFSET_DELTA, RECORDS = 21, 23, 61
"""Where these begin in a batch of format 2."""


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


def batch(values: Sequence[bytes], codec: int, first: int = 0) -> bytes:
    """Return records of format 2 in one batch. As of Java's producer, it does not say how large it is.

    Args:
        values: The values of the records, which have no keys.
        codec: The codec, 0 for none. Also other bits of the batch's attributes.
        first: The offset of the first record.
    """
    records = _compressed(codec & 7, b"".join(record(at, value) for at, value in enumerate(values)))
    return batch_of(records, codec, len(values), first)


def record(at: int, value: bytes, key: bytes | None = None) -> bytes:
    """Return a record of format 2 as it stands in a batch that is not compressed, with its place in it."""
    # No attributes, the time of the batch, its place in it, the key; no headers behind it.
    parts = b"".join(_varint(-1) if part is None else _varint(len(part)) + part for part in (key, value))
    content = b"\0\0" + _varint(at) + parts + b"\0"
    return _varint(len(content)) + content


def batch_of(records: bytes, attributes: int, count: int, first: int = 0) -> bytes:
    """Return a batch of format 2 around these bytes, with the right checksum, whatever they are."""
    body = struct.pack(">hiqqqhii", attributes, count - 1, 0, 0, -1, -1, -1, count) + records
    return struct.pack(">qiibI", first, len(body) + 9, 0, 2, _crc32c(body)) + body


def marker(offset: int) -> bytes:
    """Return the marker of a committed transaction."""
    return batch_of(record(0, bytes(6), key=b"\0\0\0\1"), CONTROL, 1, offset)


def write_logs(cluster: Cluster, logs: Mapping[str, Iterable[bytes]]) -> None:
    """Put logs in the place of those of topics. The cluster's only node is stopped, and starts again.

    Args:
        cluster: A cluster with a data folder of its own.
        logs: By topics with one partition that is empty: what each log has, in the order of the offsets.
    """
    (node,) = cluster.nodes
    node.stop()
    for topic, messages in logs.items():
        folder = folder_of(node, topic)
        for file in folder.glob("0*"):
            file.unlink()
        (folder / f"{0:020}.log").write_bytes(b"".join(messages))
    node.start()


def overwrite(node: Node, topic: str, at: int, content: bytes) -> None:
    """Damage the log of a topic while its broker runs: one that starts would cut a damaged log."""
    with (folder_of(node, topic) / f"{0:020}.log").open("r+b") as file:
        file.seek(at)
        file.write(content)


def folder_of(node: Node, topic: str) -> Path:
    """Return where a node has the first partition of a topic."""
    (folder,) = node.log.parent.glob(f"data/**/{topic}-0")
    return folder


@contextmanager
def broker_with_old_records(folder: Path) -> Iterator[Cluster]:
    """Start a broker with a data folder, whose topic `old` has OLD_RECORDS in its only partition."""
    with Cluster(data_dir=folder, config={**NOT_FENCED, **KEEP_ALL}) as cluster:
        cluster.create_topic("old")
        write_logs(cluster, {"old": _old_log()})
        yield cluster


@contextmanager
def broker_with_damage(folder: Path, codec: int) -> Iterator[Cluster]:
    """Start a broker whose topic `orders` has ten records in its only partition, and a damaged batch: offsets 4 to 6.

    Args:
        folder: A new folder for its data.
        codec: 0: a bit of the batch's last value is flipped. Otherwise nothing can be unpacked.
    """
    with Cluster(data_dir=folder, config={**NOT_FENCED, **KEEP_ALL}) as cluster:
        cluster.create_topic("orders")
        parts = [batch([b"v%d" % at for at in range(*ends)], codec, ends[0]) for ends in ((0, 4), (4, 7), (7, 10))]
        write_logs(cluster, {"orders": parts})
        # The record ends with its value, "v6", and the number of its headers.
        at, content = (RECORDS, bytes(len(parts[1]) - RECORDS)) if codec else (len(parts[1]) - 2, b"7")
        overwrite(cluster.nodes[0], "orders", len(parts[0]) + at, content)
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
