"""Which metadata of a committed offset is the sink's."""

from __future__ import annotations

import pytest

from spark_groupsource.handoff.commit_record import CommitRecord, OpenRange
from spark_groupsource.sink.recognised import kind_of, own_mark
from spark_groupsource.sink.token import Mark, Opener

RUN = "0b5dc8e3-9e4f-4c51-a8f6-000000000000"
QUERY = "5e0bd5ce-5a4a-4d49-a9e1-f1d5a8f9a1d5"
MARK = Mark(QUERY, RUN, Opener(1_763_744_390, "host-7", 4711))


@pytest.mark.parametrize(
    ("metadata", "kind"),
    [
        (f'{{"v":1,"rows":5,"sum":"0000000000000abc","run":"{RUN}"}}', "token"),
        (f'{{"v":1,"tasks":2,"rows":5,"had":[[0,2]],"run":"{RUN}"}}', "token"),
        (f'{{"v":4,"tasks":2,"rows":5,"wrote":[[0,2]],"run":"{RUN}"}}', "token"),
        (f'{{"v":1,"q":"5e0bd5ce","rows":5,"sum":"0000000000000abc","run":"{RUN}"}}', "token"),
        (f'{{"v":1,"q":"5e0bd5ce","open":3,"run":"{RUN}"}}', "mark"),
        ('{"v":7,"rows":5,"sum":"0000000000000abc","run":"","more":[]}', "token"),
    ],
)
def test_tokens_and_marks_are_known_also_of_other_versions(metadata: str, kind: str) -> None:
    assert kind_of(metadata) == kind


@pytest.mark.parametrize(
    "metadata",
    [
        MARK.metadata().replace(QUERY, "x"),
        MARK.metadata().replace(f'"{QUERY}"', "7"),
        MARK.metadata().replace("host-7", "\u2028"),
        MARK.metadata().replace("1763744390", str(2**63 - 1)),
        MARK.metadata().replace("1763744390", "253402300800"),
        "[" * 100_000,
        None,
    ],
)
def test_a_mark_is_shown_only_if_all_of_it_is_the_sinks(metadata: str | None) -> None:
    assert own_mark(MARK.metadata()) == MARK
    assert own_mark(metadata) is None


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        "",
        "x",
        "{",
        "[]",
        "1",
        "{}",
        "[" * 100_000,
        "1" * 5_000,
        '{"v":1,"run":"x"}',
        '{"v":1,"rows":5,"run":"x"}',
        '{"v":true,"rows":5,"sum":"x","run":"x"}',
        '{"v":"1","rows":5,"sum":"x","run":"x"}',
        '{"v":1,"rows":5,"sum":"x","run":7}',
        CommitRecord(stream="alpha", logged=7, done=6, next=9, open=(OpenRange(6, 9),)).metadata(),
    ],
)
def test_what_readers_commit_is_not(metadata: str | None) -> None:
    assert kind_of(metadata) is None
