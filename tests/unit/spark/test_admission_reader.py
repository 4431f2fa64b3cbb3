"""The limit of a micro-batch that Spark 4.2 and later asks the reader for."""

from __future__ import annotations

import pytest

from tests.support.options import parse

limits = pytest.importorskip("pyspark.sql.streaming.datasource", reason="Spark before 4.2 passes no limit")


def test_the_limit_is_the_most_offsets_of_a_trigger_or_else_the_least() -> None:
    from spark_groupsource.spark.admission_reader import AdmissionControlReader

    def limit_of(**options: str) -> object:
        return AdmissionControlReader(parse(**options)).getDefaultReadLimit()

    assert limit_of() == limits.ReadAllAvailable()
    assert limit_of(minOffsetsPerTrigger="5") == limits.ReadMinRows(5)
    assert limit_of(maxOffsetsPerTrigger="10") == limits.ReadMaxRows(10)
    assert limit_of(maxOffsetsPerTrigger="10", minOffsetsPerTrigger="5") == limits.ReadMaxRows(10)
