"""A range of offsets to read, and the settings that travel to the tasks."""

from __future__ import annotations

import pickle

import pytest

from spark_groupsource.fetch.arrow_schema import arrow_schema
from spark_groupsource.fetch.contract import BATCH_BYTES, FetchRange, FetchSettings


def test_a_range_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(FetchRange("t", 0, 1, 2))) == FetchRange("t", 0, 1, 2)  # noqa: S301


@pytest.mark.parametrize(("start", "end"), [(5, 4), (-1, 4)])
def test_what_is_no_range_is_refused(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="not a range"):
        FetchRange("t", 0, start, end)


def test_the_settings_can_be_pickled_and_show_no_secret() -> None:
    how = FetchSettings({"sasl.password": "open-sesame"}, arrow_schema(True))
    assert pickle.loads(pickle.dumps(how)) == how  # noqa: S301
    assert "open-sesame" not in repr(how)


def test_a_small_buffer_has_small_batches() -> None:
    schema = arrow_schema(True)
    assert FetchSettings({}, schema).batch_bytes == BATCH_BYTES
    assert FetchSettings({}, schema, buffer_bytes=800).batch_bytes == 100
