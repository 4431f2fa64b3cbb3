"""What a run reports, for whoever counts it."""

from __future__ import annotations

from spark_groupsource.metrics.tally import Tally
from spark_groupsource.observer import UNOBSERVED, Observer
from spark_groupsource.partition import TopicPartition

REPORTS = {name for name in vars(Observer) if not name.startswith("_")}


def test_the_tally_takes_every_report() -> None:
    assert len(REPORTS) > 5
    assert vars(Tally).keys() >= REPORTS


def test_a_run_that_nobody_watches_reports_to_nobody() -> None:
    UNOBSERVED.joining("0123456789abcdef")
    UNOBSERVED.planned({TopicPartition("orders", 0): 7}, 0.1, None)
    with UNOBSERVED.commit():
        pass
    assert vars(UNOBSERVED) == {}
