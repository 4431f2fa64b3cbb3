"""The steps of a check are taken in their order, as far as they can be."""

from __future__ import annotations

from collections.abc import Iterator

from spark_groupsource.cli.check.findings import Finding, Step, error, ok, take, warning


def notice(known: list[str]) -> Iterator[Finding]:
    known.append("noticed")
    yield warning("one", "it is old")


def refuse(known: list[str]) -> Iterator[Finding]:
    yield error("two", "it is missing")
    yield ok("two", f"after {known}")


def end(_known: list[str]) -> Iterator[Finding]:
    yield ok("three", "done")


def taken(*steps: Step[list[str]]) -> list[str]:
    return [finding.check for finding in take(steps, [])]


def test_a_step_adds_what_a_later_step_needs() -> None:
    findings = list(take([Step(notice), Step(refuse)], []))
    assert findings[-1] == ok("two", "after ['noticed']")


def test_an_error_ends_the_check_only_in_a_step_that_is_needed_and_after_all_that_it_finds() -> None:
    assert taken(Step(refuse), Step(end)) == ["two", "two", "three"]
    assert taken(Step(refuse, needed=True), Step(end)) == ["two", "two"]
    assert taken(Step(notice, needed=True), Step(end)) == ["one", "three"]


def test_each_finding_comes_before_the_next_step_begins() -> None:
    known: list[str] = []
    findings = take([Step(end), Step(notice)], known)
    assert (next(findings).check, known) == ("three", [])
