"""How large the batches of rows are, by what the topics take."""

from __future__ import annotations

import pytest

from spark_groupsource.sink.topics import fitting


class TestTheSizeOfBatches:
    @pytest.mark.parametrize(
        ("wanted", "limits", "size"),
        [
            (None, [1_048_588], 1_000_000),
            (None, [5_000], 5_000),
            (None, [1_048_588, 5_000], 5_000),
            (None, [None], 16_384),
            (None, [1_048_588, None], 16_384),
            (None, [5_000, None], 5_000),
            (3_000, [5_000], 3_000),
            (50_000, [5_000], 5_000),
            (50_000, [None], 50_000),
            (None, [0], 1),
        ],
    )
    def test_is_what_every_topic_takes(self, wanted: int | None, limits: list[int | None], size: int) -> None:
        assert fitting(wanted, limits) == size
