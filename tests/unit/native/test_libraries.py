"""Both libraries are used only if they are the ones that this package knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_groupsource.native import libraries
from spark_groupsource.native.libraries import NativeUnavailable, why_unavailable

pytestmark = pytest.mark.skipif(why_unavailable() is not None, reason=f"no native reader: {why_unavailable()}")


def test_the_librdkafka_of_this_installation_keeps_the_sizes_of_keys_where_they_are_read() -> None:
    assert libraries.load_libraries().key_sizes


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("_BELOW", 0x02000000, "must be the same"),
        ("_OUR_ABI", 0, "another version of this package"),
        ("KAFKA_FUNCTIONS", {"no_such_function": (None, ())}, "no rd_kafka_no_such_function"),
        ("_OUR_FILE", Path("nowhere/nothing.so"), "not been compiled"),
    ],
)
def test_what_does_not_fit_is_not_used(name: str, value: object, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, name, value)

    with pytest.raises(NativeUnavailable, match=reason):
        libraries.load_libraries.__wrapped__()
