"""The settings that travel to the tasks."""

from __future__ import annotations

import pickle

from spark_groupsource.fetch.arrow_schema import arrow_schema
from spark_groupsource.fetch.settings import BATCH_BYTES, FetchSettings


def test_they_can_be_pickled_and_show_no_secret() -> None:
    how = FetchSettings({"sasl.password": "open-sesame"}, arrow_schema(True))
    assert pickle.loads(pickle.dumps(how)) == how  # noqa: S301
    assert "open-sesame" not in repr(how)


def test_a_small_buffer_has_small_batches() -> None:
    schema = arrow_schema(True)
    assert FetchSettings({}, schema).batch_bytes == BATCH_BYTES
    assert FetchSettings({}, schema, buffer_bytes=800).batch_bytes == 100
