"""Runs the same query over Spark's own Kafka source and over this one, on the same topics and with the same options."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, Row

from tests.support.queries import Pipeline, Queries, Transform, as_it_is, assert_same_rows
from tests.support.waiting import until

MakePair = Callable[..., "Pair"]
"""Makes a query over Spark's source, and the same over this one."""

Timed = Callable[[str, Mapping[int, Sequence[int]]], None]
"""Writes records at given times (ms since 1970) into given partitions of a topic; a record's value is its time."""


class Pair:
    """Spark's source and this one, each with a checkpoint and a file sink of its own."""

    def __init__(self, theirs: Pipeline, ours: Pipeline) -> None:
        self.theirs = theirs
        self.ours = ours

    def run(self, **trigger: Any) -> list[Row]:
        """Run both to the end of what is there now, compare them, and return all rows by now."""
        self.start(**(trigger or {"availableNow": True}))
        self.finish()
        return self.same(batches=True)

    def start(self, **trigger: Any) -> None:
        """Start both."""
        for one in (self.theirs, self.ours):
            one.start(**trigger)

    def finish(self) -> None:
        """Wait until both have ended on their own."""
        for one in (self.theirs, self.ours):
            one.finish()

    def stop(self) -> None:
        """Stop both."""
        for one in (self.theirs, self.ours):
            one.stop()

    def until_rows(self, count: int) -> None:
        """Wait until both have this many rows."""
        for one in (self.theirs, self.ours):
            one.until_rows(count)

    def until_reported(self, count: int) -> None:
        """Wait until both have reported this many rows in their progress."""
        for one in (self.theirs, self.ours):
            until(lambda one=one: sum(sizes(one)) >= count, f"{count} rows in the progress", timeout_s=180)  # type: ignore[misc]

    def same(self, *, batches: bool = False) -> list[Row]:
        """Return the rows, which both have, and with `batches` in micro-batches of the same sizes in the last run."""
        rows = assert_same_rows(self.theirs.frame(), self.ours.frame())
        if batches:
            assert sizes(self.ours) == sizes(self.theirs)
        return rows

    def sizes(self) -> list[int]:
        """Return the number of rows of each micro-batch of the last run that had any, which is the same in both."""
        assert sizes(self.ours) == sizes(self.theirs)
        return sizes(self.ours)

    def failures(self, **trigger: Any) -> tuple[str, str]:
        """Start both, which must fail, and return their error messages."""
        self.start(**(trigger or {"availableNow": True}))
        return self.theirs.failure(), self.ours.failure()


def make_pair(
    queries: Queries, name: str, transform: Transform = as_it_is, schema: str = "", select: Sequence[str] = (), **options: str
) -> Pair:
    """Make the same query over both sources; it starts at the earliest offset unless the options say otherwise.

    With `schema` this source has what has to be selected from Spark's by `select`.
    """

    def selected(frame: DataFrame) -> DataFrame:
        return transform(frame.selectExpr(*select) if select else frame)

    both = {"startingOffsets": "earliest", **options}
    member = {"kafka.group.id": name, "kafka.session.timeout.ms": "20000", "kafka.topic.metadata.refresh.interval.ms": "1000"}
    return Pair(
        queries.made(f"{name}-theirs", "kafka", both, selected),
        queries.made(f"{name}-ours", "groupkafka", {**both, **member}, transform, schema or None),
    )


def sizes(pipeline: Pipeline) -> list[int]:
    """Return the number of rows of each micro-batch that had any, in the last run of a query."""
    return [each["numInputRows"] for each in pipeline.running.recentProgress if each["numInputRows"]]


def by_partition(topic: str, *values: int) -> str:
    """Return one number for each partition of a topic, as the JSON of an option."""
    return json.dumps({topic: {str(number): value for number, value in enumerate(values)}})


def numbers(count: int, start: int = 0) -> list[tuple[None, bytes]]:
    """Return records without keys whose values are consecutive numbers."""
    return [(None, b"%d" % number) for number in range(start, start + count)]
