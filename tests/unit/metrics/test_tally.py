"""What a run counts, as Prometheus scrapes it."""

from __future__ import annotations

import itertools

import pytest

from spark_groupsource.errors import CommitRefused, GenerationChanged
from spark_groupsource.handoff.commit_record import CommitRecord, OpenRange, OwedRange
from spark_groupsource.metrics.tally import Durations, Tally
from spark_groupsource.partition import OffsetRange, TopicPartition
from tests.support.scraping import scraped


class TestWhatIsCounted:
    @pytest.mark.parametrize(("seconds", "bucket"), [(0.0, 0), (0.002, 0), (0.0021, 1), (60.0, 13), (61.0, 14)])
    def test_a_duration_falls_in_the_first_bucket_that_is_not_below_it(self, seconds: float, bucket: int) -> None:
        durations = Durations().with_one(seconds)
        assert [place for place, count in enumerate(durations.counts) if count] == [bucket]
        assert durations.sum_s == seconds
        assert sum(Durations().counts) == 0, "replaced, not edited"

    def test_a_plan_that_finds_nothing_is_no_plan_but_a_look(self) -> None:
        tally = Tally("g", wall_clock=lambda: 1000.0)
        one = TopicPartition("t", 0)
        tally.planned({one: 5}, 0.3, None)
        tally.planned({one: 9}, 0.2, {one: (OffsetRange(1, 3), OffsetRange(5, 9))})
        scrape = scraped(tally)
        assert scrape.value("groupkafka_last_plan_timestamp_seconds", group="g") == 1000
        assert scrape.value("groupkafka_plan_duration_seconds_count") == 1
        assert scrape.value("groupkafka_plan_duration_seconds_sum") == 0.2
        assert scrape.value("groupkafka_plan_duration_seconds_bucket", le="0.1") == 0
        assert scrape.value("groupkafka_plan_duration_seconds_bucket", le="0.25") == 1
        assert scrape.value("groupkafka_plan_duration_seconds_bucket", le="+Inf") == 1
        assert scrape.value("groupkafka_planned_offsets_total") == 6

    def test_a_claim_counts_once_if_spark_asks_for_it_again_and_not_before_the_first_plan(self) -> None:
        tally = Tally("g")
        tally.claimed(-1, 0.1, {})
        for plan, end in ((0, 10), (0, 10), (1, 15)):
            tally.claimed(plan, 0.1, {TopicPartition("t", 0): (OffsetRange(0, end),)})
        scrape = scraped(tally)
        assert scrape.value("groupkafka_claimed_offsets_total") == 25
        assert scrape.value("groupkafka_claim_duration_seconds_count") == 2

    def test_commits_are_timed_and_refused_ones_counted_by_their_error(self) -> None:
        tally = Tally("g", clock=itertools.count(100.0, 0.5).__next__)  # each commit takes half a second
        with tally.commit():
            pass
        for error in (GenerationChanged(), GenerationChanged(), CommitRefused()):
            with pytest.raises(type(error)), tally.commit():
                raise error
        scrape = scraped(tally)
        assert scrape.value("groupkafka_commit_duration_seconds_count") == 4
        assert scrape.value("groupkafka_commit_duration_seconds_sum") == 2
        assert scrape.value("groupkafka_commit_errors_total", error="GenerationChanged") == 2
        assert scrape.value("groupkafka_commit_errors_total", error="CommitRefused") == 1

    def test_what_is_open_and_what_is_held_for_whom_since_when(self) -> None:
        mine = CommitRecord(stream="me", logged=3, done=2, next=30, open=(OpenRange(20, 30),), claimed_at=500)
        owed = (OwedRange("other", 7, 10, 20, 400), OwedRange("other", 7, 30, 35), OwedRange("me", 2, 50, 60, 300))
        theirs = CommitRecord(stream="me", logged=3, done=2, next=90, owed=owed)
        tally = Tally("g")
        tally.records_changed({TopicPartition("t", 0): mine, TopicPartition("t", 1): theirs})
        scrape = scraped(tally)
        assert scrape.value("groupkafka_in_flight_ranges") == 1
        assert scrape.value("groupkafka_in_flight_offsets") == 10
        assert scrape.value("groupkafka_in_flight_oldest_timestamp_seconds") == 500
        assert scrape.value("groupkafka_held_ranges") == 2
        assert scrape.value("groupkafka_held_offsets") == 15
        assert scrape.value("groupkafka_held_oldest_timestamp_seconds") == 400
        assert scrape.by_partition("groupkafka_partition_position_offset") == {0: 30, 1: 90}
        assert scrape.by_partition("groupkafka_partition_committed_offset") == {0: 20, 1: 10}
        assert not scrape.series("groupkafka_partition_lag_offsets"), "no end is known"

    def test_what_holds_a_committed_offset_back_and_how_much_is_finished_above_it(self) -> None:
        left = (OwedRange("b", 7, 10, 20, 400),)
        owed = CommitRecord(stream="me", logged=3, done=2, next=90, open=(OpenRange(80, 90),), owed=left, claimed_at=500)
        unknown = CommitRecord(stream="me", logged=3, done=3, next=30, owed=(OwedRange("c", 7, 10, 20),))
        in_flight = CommitRecord(stream="me", logged=3, done=2, next=30, open=(OpenRange(20, 30),), claimed_at=600)
        tally = Tally("g")
        idle = CommitRecord(stream="me", logged=3, done=3, next=30)
        tally.records_changed({TopicPartition("t", number): one for number, one in enumerate((owed, unknown, in_flight, idle))})
        scrape = scraped(tally)
        assert scrape.by_partition("groupkafka_partition_finished_lag_offsets") == {0: 60, 1: 10, 2: 0, 3: 0}
        assert scrape.by_partition("groupkafka_partition_lowest_claim_timestamp_seconds") == {0: 400, 2: 600}
        assert scrape.value("groupkafka_partition_lowest_claim_timestamp_seconds", partition="0", stream="b") == 400
        assert scrape.value("groupkafka_partition_lowest_claim_timestamp_seconds", partition="2", stream="me") == 600

    def test_an_end_below_the_position_is_no_lag(self) -> None:
        tally = Tally("g")
        one = TopicPartition("t", 0)
        tally.records_changed({one: CommitRecord(stream="me", logged=0, done=0, next=30)})
        tally.planned({one: 20, TopicPartition("t", 1): 50}, 0.1, None)
        scrape = scraped(tally)
        assert scrape.by_partition("groupkafka_partition_lag_offsets") == {0: 0}
        assert scrape.by_partition("groupkafka_partition_end_offset") == {0: 20}, "of owned partitions only"
