"""The watch for the commit log: what it reports, when it warns, and how it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from spark_groupsource.checkpoint.durable_plans import DurablePlans
from spark_groupsource.errors import CheckpointOfAnotherStream, CheckpointUnreadable
from spark_groupsource.query import durable_watch
from spark_groupsource.query.durable_watch import (
    CLOSED_S,
    LONGEST_PAUSE_S,
    REPORTED_WITHIN_S,
    UNREPORTED_S,
    Claim,
    DurableWatch,
)
from spark_groupsource.query.session import Session
from spark_groupsource.reports.driver_reports import DriverReports
from spark_groupsource.timeouts import AT_STOP_S, READ_REPORT_EVERY_S
from tests.support.checkpoints import OTHER, STREAM, Checkpoint
from tests.support.waiting import until


class Counted(DriverReports):
    """Counts the looks."""

    looks = 0

    def read(self, stream: str) -> int | None:
        self.looks += 1
        return super().read(stream)


class Watched:
    """A watch with what it reported, and a clock that can be moved."""

    def __init__(self, location: Path | str | None, reports: Counted) -> None:
        self.reported: list[tuple[str, int]] = []
        self.closed = -1
        self.given_up = -1
        self.draining = False
        self.ahead = 0.0
        self.seconds: Callable[[], float] = time.monotonic
        self.looked = 0
        self.reports = reports
        self.watch = DurableWatch(None if location is None else str(location), cast(Session, self), reports, clock=self.clock)

    def clock(self) -> float:
        return self.seconds() + self.ahead

    # What the watch asks: it takes this for the run's session.

    def is_closed(self, plan: int) -> bool:
        return self.closed >= plan

    def cannot_close(self, plan: int) -> bool:
        return self.given_up >= plan

    def is_draining(self) -> bool:
        return self.draining

    def report_durable(self, stream: str, plan: int) -> None:
        self.reported.append((stream, plan))
        self.closed = plan

    def claim(self, plan: int) -> None:
        self.watch.claiming(STREAM, plan)
        self.watch.claimed(STREAM, plan)

    def hold(self, plan: int, *, made: bool = True, for_s: float = 0) -> Claim:
        """Claim, so many seconds ago, without the threads: a test looks in their place."""
        self.watch._claim = claim = Claim(STREAM, plan, made, self.clock() - for_s)
        return claim

    def look(self) -> None:
        """Wait until the thread has looked and found nothing: it looks again."""
        before = self.reports.looks
        until(lambda: self.reports.looks >= before + 2, "two looks")

    def until_reported(self, *plans: int) -> None:
        until(lambda: self.reported == [(STREAM, plan) for plan in plans], f"reports of {plans}; there are {self.reported}")


Watch = Callable[[str], Watched]
"""Makes a watch that looks at the report only, or also at the checkpoint."""


@pytest.fixture(autouse=True)
def first_read_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine it may take longer than a claim would wait."""
    monkeypatch.setattr(durable_watch, "AT_START_S", 90.0)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint(tmp_path / "checkpoint")


@pytest.fixture
def reports(tmp_path: Path) -> Counted:
    return Counted(4711, tmp_path / "reports")


@pytest.fixture
def watched(checkpoint: Checkpoint, reports: Counted) -> Iterator[Watch]:
    runs: list[Watched] = []

    def make(way: str) -> Watched:
        runs.append(Watched(checkpoint.folder if way == "checkpoint" else None, reports))
        return runs[-1]

    yield make
    for run in runs:
        # Its threads outlive the test, and could warn in a later one.
        run.watch._claim = run.watch._suspected = None


@pytest.mark.parametrize("way", ["report", "checkpoint"])
def test_each_plan_is_reported_once_when_it_is_durable(
    watched: Watch, checkpoint: Checkpoint, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable_watch, "READ_CHECKPOINT_EVERY_S", 0.1)
    run = watched(way)
    for plan in (0, 1, 2):
        checkpoint.log(plan + 5, plan)
        run.claim(plan)
        assert run.watch._claim is not run.watch._found
        if way == "checkpoint":
            checkpoint.commit(plan + 5)
        else:
            run.reports.write(STREAM, plan)
        run.until_reported(*range(plan + 1))
        run.ahead += 1000
        assert run.watch.stop_watching(plan) < 1000, "the claims were closed long ago"
        assert run.watch.stop_watching(plan) == 0.0, "nothing is claimed"


def test_a_plan_is_not_reported_while_its_claims_are_being_made(watched: Watch) -> None:
    run = watched("report")
    run.watch.claiming(STREAM, 3)
    run.reports.write(STREAM, 3)
    run.watch._poll_report()
    assert run.reported == []
    run.watch.claimed(STREAM, 3)
    run.until_reported(3)


def test_a_plan_is_not_reported_from_the_checkpoint_while_its_claims_are_being_made(
    watched: Watch, checkpoint: Checkpoint
) -> None:
    """The option may name an older copy, in which the plan of this number is finished."""
    run = watched("checkpoint")
    checkpoint.log(0, 3)
    checkpoint.commit(0)
    run.watch.claiming(STREAM, 3)
    assert run.watch._has_read
    assert run.reported == []
    run.watch.claimed(STREAM, 3)
    run.until_reported(3)


def test_a_report_that_was_there_before_the_claim_is_not_believed(watched: Watch) -> None:
    """The checkpoint may have been restored, and the plan of this number may be another one now."""
    run = watched("report")
    run.reports.write(STREAM, 3)
    run.claim(3)
    run.look()
    assert run.watch.stop_watching(3) > 0
    assert run.reported == []


@pytest.mark.parametrize("plan", [2, 4])
def test_a_report_of_another_plan_is_ignored(watched: Watch, plan: int) -> None:
    run = watched("report")
    run.claim(3)
    run.reports.write(STREAM, plan)
    run.reports.write(OTHER, 3)
    run.look()
    assert run.watch.stop_watching(3) > 0
    assert run.reported == []


def test_the_checkpoint_is_found_again_when_micro_batches_were_left_out(
    watched: Watch, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stateful query has micro-batches without new data."""
    monkeypatch.setattr(durable_watch, "READ_CHECKPOINT_EVERY_S", 0.1)
    run = watched("checkpoint")
    checkpoint.log(5, 0)
    checkpoint.commit(5)
    run.claim(0)
    run.until_reported(0)
    for batch in (6, 7):
        checkpoint.log(batch, 0)
        checkpoint.commit(batch)
    checkpoint.log(8, 1, version="v2")
    run.claim(1)
    checkpoint.commit(8)
    run.until_reported(0, 1)


def test_the_checkpoint_of_another_stream_is_an_error_that_names_both(watched: Watch, checkpoint: Checkpoint) -> None:
    run = watched("checkpoint")
    checkpoint.log(9, 0, stream=OTHER)
    with pytest.raises(
        CheckpointOfAnotherStream, match=f"is the checkpoint of stream {OTHER}, but this query is stream {STREAM}"
    ):
        run.watch.claiming(STREAM, 0)
    with pytest.raises(CheckpointOfAnotherStream):
        run.watch.stop_watching(-1)


def test_the_first_claim_waits_until_a_file_that_seems_to_be_wrong_is_known_to_be_so(
    watched: Watch, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first look saw it half-written: a query with another source before this one."""
    monkeypatch.setattr(durable_watch, "READ_CHECKPOINT_EVERY_S", 0.1)
    run = watched("checkpoint")
    checkpoint.log(9, 0)
    whole = checkpoint.read(9)
    checkpoint.log(9, 7, stream=OTHER)
    locate = DurablePlans.locate

    def written_after_the_look(plans: DurablePlans, stream: str, plan: int) -> int | None:
        found = locate(plans, stream, plan)
        checkpoint.replace(9, whole)
        return found

    monkeypatch.setattr(DurablePlans, "locate", written_after_the_look)
    run.watch.claiming(STREAM, 0)
    assert run.watch._can_notice, "the second look has found the query"
    run.watch.claimed(STREAM, 0)
    checkpoint.commit(9)
    run.until_reported(0)


@pytest.mark.parametrize("location", ["nowhere://host/path", "s3://user:pass@/"])
def test_a_location_that_cannot_be_read_is_one_warning_and_reports_still_count(
    reports: Counted, location: str, caplog: pytest.LogCaptureFixture
) -> None:
    run = Watched(location, reports)
    for plan in (0, 1):
        run.claim(plan)
        reports.write(STREAM, plan)
        run.until_reported(*range(plan + 1))
    (warning,) = caplog.messages
    assert warning.startswith("checkpointLocation = ")
    assert "cannot be read" in warning
    assert "pass" not in warning.replace("password", "")


def test_a_file_system_that_hangs_delays_one_claim_and_no_report(watched: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    hangs = threading.Event()
    monkeypatch.setattr(durable_watch, "AT_START_S", 0.1)
    monkeypatch.setattr(DurablePlans, "locate", lambda *_: hangs.wait())
    run = watched("checkpoint")
    try:
        run.claim(0)
        monkeypatch.setattr(durable_watch, "AT_START_S", 600.0)
        run.reports.write(STREAM, 0)
        run.until_reported(0)
        run.claim(1)
        run.reports.write(STREAM, 1)
        run.until_reported(0, 1)
    finally:
        hangs.set()


def test_a_plan_without_any_claim_is_not_looked_for(watched: Watch, caplog: pytest.LogCaptureFixture) -> None:
    """Batch 0 of an empty topic, or a replay of which others have everything."""
    run = watched("report")
    run.watch.claiming(STREAM, 0)
    run.watch.nothing_claimed()
    run.ahead += 10 * UNREPORTED_S
    assert run.watch.stop_watching(0) == 0.0
    run.watch.conclude(AT_STOP_S)
    assert run.watch._suspected is None
    assert caplog.messages == []


def test_a_location_without_the_query_is_one_warning(watched: Watch, caplog: pytest.LogCaptureFixture) -> None:
    run = watched("checkpoint")
    run.claim(0)
    run.ahead += 2 * UNREPORTED_S
    run.watch._wake()
    until(lambda: caplog.messages, "a warning")
    (warning,) = caplog.messages
    assert "contains no micro-batch from this query" in warning


def test_claims_that_stay_open_although_nothing_is_heard_are_worth_one_warning(
    watched: Watch, caplog: pytest.LogCaptureFixture
) -> None:
    run = watched("report")
    # The warning names the seconds: those of the machine would be among them.
    run.seconds = lambda: 1_000.0
    for plan in (0, 1, 2):
        run.claim(plan)
        run.ahead += 2 * UNREPORTED_S
        assert run.watch.stop_watching(plan) >= 2 * UNREPORTED_S
        run.ahead += REPORTED_WITHIN_S + 1
        run.watch._wake()
        until(lambda: caplog.messages, "a warning")
    (warning,) = caplog.messages
    assert "stayed unconfirmed for 20 s, until the next trigger" in warning
    assert "register(spark)" in warning
    assert "checkpointLocation" in warning


@pytest.mark.parametrize("way", ["report", "checkpoint"])
def test_a_micro_batch_that_takes_long_is_no_reason_to_warn(
    watched: Watch, checkpoint: Checkpoint, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Under constant load the next trigger comes before the report."""
    run = watched(way)
    for plan in (0, 1, 2):
        checkpoint.log(plan, plan)
        run.claim(plan)
        run.ahead += 2 * UNREPORTED_S
        run.watch.stop_watching(plan)
        if way == "report":
            run.reports.write(STREAM, plan)
    run.claim(3)
    run.ahead += 2 * UNREPORTED_S
    run.look()
    assert caplog.messages == []


def test_a_stop_waits_for_the_report_that_comes_after_it(watched: Watch) -> None:
    run = watched("report")
    run.claim(0)
    run.reports.write(STREAM, 0)
    began = time.monotonic()
    run.watch.conclude(60)
    assert run.reported == [(STREAM, 0)]
    assert time.monotonic() - began < 30, "it is closed"


def test_a_stop_believes_the_checkpoint_that_the_micro_batch_is_not_finished(watched: Watch, checkpoint: Checkpoint) -> None:
    run = watched("checkpoint")
    checkpoint.log(0, 0)
    run.claim(0)
    began = time.monotonic()
    run.watch.conclude(60)
    assert run.watch._not_durable is run.watch._claim
    assert run.reported == []
    assert time.monotonic() - began < 30, "Spark has ended, so nothing more comes"


def test_a_look_that_began_before_the_stop_is_not_the_last_one(
    watched: Watch, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark writes its commit log after this look has passed it, and before it stops the source."""
    run = watched("checkpoint")
    checkpoint.log(0, 0)
    is_durable = DurablePlans.is_durable

    def stopped_meanwhile(plans: DurablePlans, stream: str, plan: int) -> bool:
        found = is_durable(plans, stream, plan)
        run.watch._stopping = True
        return found

    monkeypatch.setattr(DurablePlans, "is_durable", stopped_meanwhile)
    claim = run.hold(0)
    assert run.watch._poll_checkpoint() == READ_REPORT_EVERY_S
    assert run.watch._not_durable is None
    checkpoint.commit(0)
    assert run.watch._poll_checkpoint() is None
    assert run.reported == [(STREAM, 0)]
    assert run.watch._found is claim


@pytest.mark.parametrize("way", ["report", "checkpoint"])
def test_a_stop_without_any_word_waits_as_long_as_it_says(watched: Watch, way: str) -> None:
    """No program reports anything, and the checkpoint does not have the query."""
    run = watched(way)
    began = time.monotonic()
    run.watch.conclude(60)
    assert time.monotonic() - began < 30, "nothing is claimed"
    run.watch.claiming(STREAM, 0)
    run.watch.conclude(60)
    assert time.monotonic() - began < 30, "its claims are not made: it is not finished"
    run.claim(0)
    began = time.monotonic()
    run.watch.conclude(0.3)
    assert 30 > time.monotonic() - began >= 0.3


def test_a_stop_closes_what_it_has_found_even_if_that_takes_longer_than_it_looks(watched: Watch) -> None:
    """As when another member of the group leaves at the same time, and the commit waits for a rebalance."""
    run = watched("report")
    run.claim(0)
    run.reports.write(STREAM, 0)
    until(lambda: run.reported, "it is found")
    run.closed = -1
    threading.Timer(1.0, lambda: setattr(run, "closed", 0)).start()
    assert run.watch.conclude(0.1)


@pytest.mark.parametrize("reported", [False, True])
def test_a_stop_does_not_wait_for_a_member_that_cannot_close_the_claims(watched: Watch, reported: bool) -> None:
    """The member may fail while the stop waits for its commit."""
    run = watched("report")
    run.claim(0)
    if reported:
        run.reports.write(STREAM, 0)
        until(lambda: run.reported, "it is found")
        run.closed = -1
    threading.Timer(1.0, lambda: setattr(run, "given_up", 0)).start()
    began = time.monotonic()
    assert not run.watch.conclude(60)
    assert time.monotonic() - began < CLOSED_S / 2


def test_a_checkpoint_that_no_longer_can_be_read_says_so(tmp_path: Path) -> None:
    (tmp_path / "offsets").write_text("a file, where a folder is expected")
    with pytest.raises(CheckpointUnreadable):
        DurablePlans(str(tmp_path)).locate(STREAM, 0)


class TestASlowFileSystem:
    """To find the plan, and to look for its commit, takes three seconds each. The test looks in the place of the threads."""

    @pytest.fixture
    def run(self, watched: Watch, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> Watched:
        run = watched("checkpoint")
        # A clock that only the test moves: each second of the machine in a look would make the pause four seconds longer.
        run.seconds = lambda: 1_000.0
        locate = DurablePlans.locate

        def slow(plans: DurablePlans, stream: str, plan: int) -> int | None:
            run.looked += 1
            run.ahead += 3
            return locate(plans, stream, plan)

        monkeypatch.setattr(DurablePlans, "locate", slow)
        checkpoint.log(0, 0)
        run.hold(0)
        return run

    def looks_after(self, run: Watched, seconds: float) -> bool:
        before = run.looked
        run.ahead += seconds
        run.watch._poll_checkpoint()
        return run.looked > before

    def test_is_looked_at_for_a_fifth_of_the_time(self, run: Watched) -> None:
        assert self.looks_after(run, 0)
        assert not self.looks_after(run, 23)
        assert self.looks_after(run, 1.5)

    def test_is_looked_at_every_second_while_a_partition_drains(self, run: Watched) -> None:
        assert self.looks_after(run, 0)
        run.draining = True
        assert not self.looks_after(run, 0.5)
        assert self.looks_after(run, 1)

    def test_is_looked_at_at_once_when_the_query_is_stopped(self, run: Watched) -> None:
        assert self.looks_after(run, 0)
        run.watch._stopping = True
        assert self.looks_after(run, 0)

    def test_is_no_longer_waited_for_when_it_is_fast_again(self, run: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self.looks_after(run, 0)
        monkeypatch.undo()
        run.ahead += 25
        run.watch._poll_checkpoint()
        assert run.watch._pause_s < 3

    def test_is_looked_at_rarely_when_it_does_not_have_the_query(
        self, run: Watched, checkpoint: Checkpoint, caplog: pytest.LogCaptureFixture
    ) -> None:
        checkpoint.replace(0, "")
        for ahead in (0, 13):
            assert self.looks_after(run, ahead)
            assert (caplog.messages != []) is (ahead > UNREPORTED_S)
        assert not self.looks_after(run, LONGEST_PAUSE_S - 1)
        assert self.looks_after(run, 2)


class TestWithoutTheThreads:
    @pytest.mark.parametrize(("made", "plan"), [(False, 3), (True, 2), (True, 4)], ids=["not made", "older", "newer"])
    def test_claims_of_another_plan_or_that_are_not_made_were_not_open(self, watched: Watch, made: bool, plan: int) -> None:
        run = watched("report")
        run.hold(3, made=made)
        run.ahead += 2 * UNREPORTED_S
        assert run.watch.stop_watching(plan) == 0.0
        assert run.watch._suspected is None

    def test_claims_that_are_open_for_a_short_time_are_no_reason_to_warn(self, watched: Watch) -> None:
        run = watched("report")
        run.hold(3)
        run.ahead += UNREPORTED_S / 2
        assert run.watch.stop_watching(3) >= UNREPORTED_S / 2
        assert run.watch._suspected is None

    def test_a_warning_does_not_wait_for_ever_while_triggers_follow_each_other(
        self, watched: Watch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The report of a plan may be late, but not by more than that."""
        run = watched("report")
        warned = []
        for plan in range(3):
            run.hold(plan, for_s=UNREPORTED_S + 1)
            run.watch.stop_watching(plan)
            run.ahead += 0.4 * REPORTED_WITHIN_S
            run.watch._poll_report()
            warned.append(len(caplog.messages))
        assert warned == [0, 0, 1]

    def test_a_report_that_comes_soon_after_all_is_no_reason_to_warn(
        self, watched: Watch, caplog: pytest.LogCaptureFixture
    ) -> None:
        run = watched("report")
        run.hold(3)
        run.ahead += 2 * UNREPORTED_S
        run.watch.stop_watching(3)
        run.reports.write(STREAM, 3)
        run.ahead += 2 * REPORTED_WITHIN_S
        run.watch._poll_report()
        assert run.watch._can_notice
        assert caplog.messages == []

    def test_a_report_that_is_late_after_a_slow_start_is_no_reason_to_warn(
        self, watched: Watch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The first micro-batch took 50 s. The driver's program is as slow, and the next trigger comes before its report."""
        run = watched("report")
        run.hold(0, for_s=50)
        run.watch.stop_watching(0)
        for _ in range(20):
            run.ahead += 1
            run.watch._poll_report()
        run.watch.claiming(STREAM, 1)
        run.reports.write(STREAM, 0)
        run.ahead += 100
        run.watch._poll_report()
        assert run.watch._can_notice
        assert caplog.messages == []

    @pytest.mark.parametrize("way", ["report", "checkpoint"])
    def test_what_was_found_is_not_reported_again(self, watched: Watch, checkpoint: Checkpoint, way: str) -> None:
        run = watched("checkpoint")
        checkpoint.log(0, 3)
        run.hold(3)
        look = run.watch._poll_report if way == "report" else run.watch._poll_checkpoint
        if way == "report":
            run.reports.write(STREAM, 3)
        else:
            checkpoint.commit(0)
        for _ in range(2):
            assert look() is None
            run.ahead += 10
        assert run.reported == [(STREAM, 3)]
        assert run.watch._can_notice

    def test_the_checkpoint_of_another_stream_is_one_error_in_the_log(
        self, watched: Watch, checkpoint: Checkpoint, caplog: pytest.LogCaptureFixture
    ) -> None:
        run = watched("checkpoint")
        checkpoint.log(0, 3, stream=OTHER)
        run.hold(3)
        for _ in range(4):
            run.watch._poll_checkpoint()
            run.ahead += 10
        assert len(caplog.messages) == 1

    @pytest.mark.parametrize("made", [False, True])
    def test_a_location_without_the_query_is_no_reason_to_warn_before_it_can_be_known(
        self, watched: Watch, caplog: pytest.LogCaptureFixture, made: bool
    ) -> None:
        run = watched("checkpoint")
        run.hold(3, made=made)
        run.ahead += UNREPORTED_S / 2
        run.watch._poll_checkpoint()
        assert caplog.messages == []
        run.ahead += UNREPORTED_S
        run.watch._poll_checkpoint()
        assert len(caplog.messages) == int(made)
