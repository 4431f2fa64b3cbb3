"""The reader of a stream whose options or schema are wrong: it raises at Spark's first call.

PySpark's runner cannot show an error of `streamReader` itself: its `finally` then stops a reader that it does not have, and ends
with an UnboundLocalError of its own.
"""

from __future__ import annotations

from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader

from spark_groupsource.errors import GroupKafkaError
from spark_groupsource.spark.short_errors import shown_alone


class RefusedReader(DataSourceStreamReader):
    """Raises one error, whatever Spark asks first: that depends on its version, on the trigger and on the checkpoint.

    Args:
        wrong: What the user has to correct.
    """

    def __init__(self, wrong: GroupKafkaError) -> None:
        self._wrong = wrong

    @shown_alone()
    def _refuse(self, *asked: Any, **by_name: Any) -> NoReturn:
        raise self._wrong

    # Each with parameters: Spark counts those of `latestOffset` before it calls it (admission_reader.py).
    initialOffset = _refuse
    latestOffset = _refuse
    partitions = _refuse
    read = _refuse
    getDefaultReadLimit = _refuse
    prepareForTriggerAvailableNow = _refuse
