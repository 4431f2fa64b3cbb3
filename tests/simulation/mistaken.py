"""Hand-off rules with one mistake each, with which faults.py replaces the real ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from spark_groupsource.group.closing import Report, believed
from spark_groupsource.group.survey import Question
from spark_groupsource.handoff import losses
from spark_groupsource.handoff import rules as handoff
from spark_groupsource.handoff.commit_record import CommitRecord, Foreign, GroupCommit, OtherFormat
from spark_groupsource.handoff.rules import Stream, Verdict
from spark_groupsource.partition import OffsetRange, TopicPartition
from tests.support.held_survey import HeldSurvey


def adopted_with(**otherwise: Any) -> Callable[..., CommitRecord]:
    """Return an adoption that writes different values into these fields."""
    return lambda *arguments, **named: handoff.adopt(*arguments, **named).model_copy(update=otherwise)


def claimed_with(**otherwise: Any) -> Callable[..., Verdict]:
    """Return claims that are decided as if these values were true."""
    return lambda *arguments, **named: handoff.claim(*arguments, **{**named, **otherwise})


def position_from_committed_offset(stream: Stream, where: TopicPartition, commit: GroupCommit, **named: Any) -> CommitRecord:
    adopted = handoff.adopt(stream, where, commit, **named)
    return adopted.model_copy(update={"next": adopted.offset, "owed": (), "open": ()})


def only_open_ranges_closed(record: CommitRecord, stream: handoff.Stream) -> CommitRecord:
    """Close nothing that is owed to the stream itself."""
    return handoff.confirm(record, stream).model_copy(update={"owed": record.owed}) if record.open else record


def owed_dropped_without_evidence(record: CommitRecord, done: handoff.Evidence) -> CommitRecord:
    return record.model_copy(update={"owed": ()}) if record.owed else record


def planned(stream: Stream, where: TopicPartition, *_: Any) -> tuple[OffsetRange, ...]:
    return tuple(offsets for offsets in stream.ranges[where] if offsets.size)


def everything_replayed(*arguments: Any, **named: Any) -> Verdict:
    verdict = handoff.claim(*arguments, **named)
    return verdict if verdict.write else Verdict(read=planned(*arguments))


def left_out_too_early(*arguments: Any, **named: Any) -> Verdict:
    return replace(handoff.claim(*arguments, **named), waits=False)


def confirmed_before_durable(record: CommitRecord, stream: Stream) -> CommitRecord:
    return handoff.confirm(record, replace(stream, durable=stream.logged))


def adopted_with_the_durable_plan(stream: Stream, *arguments: Any, **named: Any) -> CommitRecord:
    adopted = handoff.adopt(stream, *arguments, **named)
    return adopted if adopted.open else adopted.model_copy(update={"logged": stream.durable, "done": stream.durable})


def open_claims_forgotten(stream: Stream, where: TopicPartition, commit: GroupCommit, **named: Any) -> CommitRecord:
    if isinstance(commit, CommitRecord) and commit.stream != stream.name:
        commit = commit.model_copy(update={"open": ()})
    return handoff.adopt(stream, where, commit, **named)


def evidence_from_logged_plans(commits: Iterable[GroupCommit]) -> dict[str, int]:
    return {commit.stream: commit.logged for commit in commits if isinstance(commit, CommitRecord)}


def foreign_commit_ignored(stream: Stream, where: TopicPartition, commit: GroupCommit, **named: Any) -> CommitRecord:
    return handoff.adopt(stream, where, None if isinstance(commit, Foreign) else commit, **named)


def place_in_the_last_plan_ignored(stream: Stream, *arguments: Any, **named: Any) -> CommitRecord:
    return handoff.adopt(replace(stream, ranges={}), *arguments, **named)


def newer_plan_overlooked(stream: Stream, *arguments: Any, **named: Any) -> CommitRecord:
    with patch("spark_groupsource.handoff.rules._newest_plan", return_value=-1):
        return handoff.adopt(stream, *arguments, **named)


def lacking_commit_overlooked(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Return a rule that ignores whether the group has recorded the newest plan as done."""

    def faulty(*arguments: Any, **named: Any) -> Any:
        with patch("spark_groupsource.handoff.rules._lacks_commit", return_value=False):
            return rule(*arguments, **named)

    return faulty


def only_the_owner_says_what_is_done(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Return a rule that forgets which plans of earlier owners are done."""

    def faulty(*arguments: Any, **named: Any) -> Any:
        result = rule(*arguments, **named)
        past = tuple(earlier._replace(done=-1) for earlier in result.past or ()) or None
        return result if past == result.past else result.model_copy(update={"past": past})

    return faulty


def adopted_off_by(by: int) -> Callable[..., CommitRecord]:
    def faulty(stream: Stream, where: TopicPartition, commit: GroupCommit, **named: Any) -> CommitRecord:
        adopted = handoff.adopt(stream, where, commit, **named)
        another = not isinstance(commit, CommitRecord) or commit.stream != stream.name
        return adopted.model_copy(update={"next": max(0, adopted.next + by)}) if another and not adopted.owed else adopted

    return faulty


def claimed_as(change: Callable[[CommitRecord, CommitRecord], Mapping[str, Any]]) -> Callable[..., Verdict]:
    """Return claims that are written differently: `change` returns the difference, from the old and the new record."""

    def faulty(stream: Stream, where: TopicPartition, commit: GroupCommit, **named: Any) -> Verdict:
        verdict = handoff.claim(stream, where, commit, **named)
        if verdict.write is None or not isinstance(commit, CommitRecord):
            return verdict
        return replace(verdict, write=verdict.write.model_copy(update=dict(change(commit, verdict.write))))

    return faulty


def next_off_by(by: int) -> Callable[..., Verdict]:
    return claimed_as(lambda _, written: {"next": written.next + by})


def only_new_in_open(before: CommitRecord, written: CommitRecord) -> dict[str, Any]:
    return {"open": tuple(held for held in written.open if held.start >= before.next)}


def reread_range_still_owed(before: CommitRecord, written: CommitRecord) -> dict[str, Any]:
    return {**only_new_in_open(before, written), "owed": before.owed}


def earlier_topic_believed(stream: Stream, where: TopicPartition, commit: GroupCommit, **named: Any) -> CommitRecord:
    if isinstance(commit, CommitRecord):
        commit = commit.model_copy(update={"topic_id": None})
    return handoff.adopt(replace(stream, topics={}), where, commit, **named)


def still_held_of_an_earlier_topic(loss: losses.PartitionLoss, resume: int, record: CommitRecord) -> CommitRecord:
    written = losses.record_after(loss, resume, record)
    return written.model_copy(update={"owed": record.owed, "next": record.next}) if record.owed else written


def position_of_an_earlier_topic(loss: losses.PartitionLoss, resume: int, record: CommitRecord) -> CommitRecord:
    return losses.record_after(loss, resume, record).model_copy(update={"next": record.next})


def read_on_at_the_end_of_a_cut_log(loss: losses.PartitionLoss, resume: int, record: CommitRecord) -> CommitRecord:
    return losses.record_after(loss, loss.end if loss.end is not None else resume, record)


def still_held_above_the_cut(loss: losses.PartitionLoss, resume: int, record: CommitRecord) -> CommitRecord:
    written = losses.record_after(loss, resume, record)
    return written.model_copy(update={"owed": record.owed, "next": record.next}) if record.owed else written


def with_the_epoch_before(*arguments: Any, **named: Any) -> Verdict:
    """Return a claim that moves the position but keeps the old leader epoch."""
    verdict = handoff.claim(*arguments, **named)
    before = arguments[2]
    if verdict.write is None or not isinstance(before, CommitRecord):
        return verdict
    return replace(verdict, write=verdict.write.model_copy(update={"epoch": before.epoch}))


def believed_if(compare: Callable[[int, int], bool], *, own: bool = True) -> Callable[..., bool]:
    """Mistake a report of another plan, or from another stream, for one of the newest claimed plan."""

    def faulty(report: Report | None, stream: Stream, claimed: int | None) -> bool:
        if report is not None and claimed is not None and (report[0] == stream.name) is own and compare(report[1], claimed):
            report = (stream.name, claimed)
        return believed(report, stream, claimed)

    return faulty


def newer_is_foreign(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Return a rule that mistakes a record from the next version for another client's commit."""

    def faulty(stream: Stream, where: TopicPartition, commit: GroupCommit, **named: Any) -> Any:
        return rule(stream, where, Foreign(commit.offset) if isinstance(commit, OtherFormat) else commit, **named)

    return faulty


class LateAnswersBelieved(HeldSurvey):
    """Accepts every answer about a partition that is asked about now, even one to a question from an earlier ownership."""

    def _bound(self, question: Question) -> set[TopicPartition]:
        return set(question.commits.keys() & self._open.keys())
