"""The metadata of committed offsets, which any client can write."""

from __future__ import annotations

import pytest

from spark_groupsource.brokers.offsets import metadata_of


class Found:
    """An offset as confluent-kafka returns it: it decodes the metadata when that is asked for."""

    def __init__(self, metadata: bytes | None) -> None:
        self._metadata = metadata

    @property
    def metadata(self) -> str | None:
        return None if self._metadata is None else self._metadata.decode()


@pytest.mark.parametrize(
    ("written", "read"),
    [(None, None), (b"", ""), (b"{}", "{}"), ("ü".encode(), "ü"), (b"{}\xe1", None), (b"{}\0rest", "{}")],
)
def test_metadata_that_is_no_text_is_none(written: bytes | None, read: str | None) -> None:
    assert metadata_of(Found(written)) == read
