"""Comparing DataFrames: a difference is shown as a table, one row beside the other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from chispa import assert_df_equality
from pyspark.sql import DataFrame


def assert_same_rows(expected: DataFrame, found: DataFrame) -> None:
    """Fail unless both have the same schema and the same rows, in any order; a row that is doubled in one is a difference."""
    assert_df_equality(expected, found, ignore_row_order=True)


def assert_rows(found: DataFrame, expected: Iterable[tuple[Any, ...]]) -> None:
    """Fail unless the DataFrame has exactly these rows, in any order."""
    assert_same_rows(found.sparkSession.createDataFrame(list(expected), found.schema), found)
