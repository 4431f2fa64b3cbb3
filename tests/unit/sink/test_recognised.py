"""Which metadata of a committed offset is the sink's."""

from __future__ import annotations

import pytest

from spark_groupsource.handoff.commit_record import CommitRecord, OpenRange
from spark_groupsource.sink.recognised import is_token

RUN = "0b5dc8e3-9e4f-4c51-a8f6-000000000000"


@pytest.mark.parametrize(
    "metadata",
    [
        f'{{"v":1,"rows":5,"sum":"0000000000000abc","run":"{RUN}"}}',
        f'{{"v":1,"tasks":2,"rows":5,"had":[[0,2]],"run":"{RUN}"}}',
        f'{{"v":1,"q":"5e0bd5ce","rows":5,"sum":"0000000000000abc","run":"{RUN}"}}',
        f'{{"v":1,"q":"5e0bd5ce","open":3,"run":"{RUN}"}}',
        '{"v":7,"rows":5,"sum":"0000000000000abc","run":"","more":[]}',
    ],
)
def test_tokens_of_tasks_and_drivers_are_known_also_of_other_versions(metadata: str) -> None:
    assert is_token(metadata)


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
    assert not is_token(metadata)
