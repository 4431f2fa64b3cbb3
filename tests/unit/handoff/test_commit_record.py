"""The record that a member writes to its group, and what is made of other clients' commits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_groupsource.handoff.commit_record import (
    VERSION,
    CommitRecord,
    Foreign,
    OpenRange,
    OtherFormat,
    OwedRange,
    PastStream,
    read_commit,
)

FORMATS = Path(__file__).parents[1] / "formats"
STREAM = "0f3c9d2a7b615e48"
OTHER = "a91d0c77e2b4f635"

streams = st.from_regex(r"[0-9a-zA-Z_-]{1,64}", fullmatch=True)
plans = st.integers(-1, 2**63 - 1)
topic_ids = st.none() | st.from_regex(r"[0-9a-zA-Z_-]{22}", fullmatch=True)
times = st.none() | st.integers(0, 253_402_300_799)


@st.composite
def records(draw: st.DrawFn) -> CommitRecord:
    bounds = sorted(draw(st.sets(st.integers(0, 2**63 - 1), max_size=12)))
    ranges = list(zip(bounds[::2], bounds[1::2], strict=False))
    owed = draw(st.lists(st.sampled_from(ranges), unique=True)) if ranges else []
    lowest = max((end for _, end in ranges), default=0)
    done, logged = sorted((draw(plans), draw(plans)))
    return CommitRecord(
        stream=draw(streams),
        logged=logged,
        done=done,
        next=draw(st.integers(lowest, 2**63 - 1)),
        open=tuple(OpenRange(*held) for held in ranges if held not in owed),
        owed=tuple(OwedRange(draw(streams), draw(plans), *held, draw(times)) for held in owed),
        claimed_at=draw(times),
        topic_id=draw(topic_ids),
    )


@given(records())
def test_a_record_reads_back_as_it_was_written(record: CommitRecord) -> None:
    assert read_commit(record.offset, record.metadata()) == record


@given(records())
def test_what_holds_a_committed_offset_back_starts_there_and_the_rest_below_next_is_finished(record: CommitRecord) -> None:
    held = record.lowest_claim
    if held is None:
        assert record.offset == record.next
        assert not record.unconfirmed
        return
    assert held.claim.range == record.unconfirmed[0]
    assert held.claim.start == record.offset
    assert held.finished_lag == record.next - record.offset - sum(one.size for one in record.unconfirmed)
    assert held.finished_lag >= 0
    assert held.claim in (*record.owed, *record.open_as_owed)
    assert all(claim[:2] + claim[4:] == (record.stream, record.logged, record.claimed_at) for claim in record.open_as_owed)


@given(st.lists(st.sampled_from(["finished", "open", "owed"]), max_size=30), st.integers(0, 50))
def test_finished_lag_is_counted_as_one_would_offset_by_offset(offsets: list[str], first: int) -> None:
    """Each offset from the first one has a fate. Those before the first unconfirmed one are below the committed offset."""
    places = list(enumerate(offsets, first))
    record = CommitRecord(
        stream="me",
        logged=4,
        done=3,
        next=first + len(offsets),
        open=tuple(OpenRange(offset, offset + 1) for offset, fate in places if fate == "open"),
        owed=tuple(OwedRange("other", 7, offset, offset + 1) for offset, fate in places if fate == "owed"),
    )
    finished = [offset for offset, fate in places if fate == "finished" and offset > record.offset]
    held = record.lowest_claim
    assert (0 if held is None else held.finished_lag) == len(finished)
    assert (held is None) == (set(offsets) <= {"finished"})


ALL_FIELDS = CommitRecord(
    stream=STREAM,
    logged=41,
    done=40,
    next=300,
    open=(OpenRange(200, 260), OpenRange(260, 300)),
    owed=(OwedRange(OTHER, 7, 120, 180, 1_763_744_384),),
    claimed_at=1_763_744_390,
    topic_id="Zm9vYmFyYmF6cXV4MTIzNA",
    cluster_id="MkU3OEVBNTcwNTJENDM2Qg",
    member="hJ4Kx0_Zt-8",
    past=(PastStream(OTHER, 7, 6), PastStream("b", 0, 0)),
)


def test_the_format_of_a_release_is_read_permanently() -> None:
    stored = json.loads((FORMATS / "commit_record_v4.json").read_text())
    offset, text = stored["offset"], stored["metadata"]
    assert read_commit(offset, text) == read_commit(offset, text, ALL_FIELDS.cluster_id) == ALL_FIELDS
    assert ALL_FIELDS.metadata() == text
    assert read_commit(offset, text, "another") == Foreign(offset, ALL_FIELDS.cluster_id)
    assert json.loads(text).keys() == {
        field.alias or name for name, field in CommitRecord.model_fields.items() if not field.exclude
    }


def test_a_partition_that_nobody_has_committed_has_no_record() -> None:
    assert read_commit(-1001, None) is None
    assert read_commit(-1, '{"v":4}') is None


VALID: dict[str, Any] = {
    "v": 4,
    "s": STREAM,
    "n": 4,
    "done": 3,
    "next": 30,
    "open": [[20, 30]],
    "owed": [[OTHER, 7, 10, 20]],
}


def compact(fields: dict[str, Any]) -> str:
    """The fields as JSON in the one form that a record has."""
    return json.dumps(fields, separators=(",", ":"))


@pytest.mark.parametrize(
    "change",
    [
        {"v": 0},
        {"v": True},
        {"s": ""},
        {"s": "a b"},
        {"s": "x" * 65},
        {"n": -2},
        {"n": 2},
        {"n": 2**63},
        {"next": 29},
        {"next": -1},
        {"open": [[20, 20]]},
        {"open": [[19, 30]]},
        {"open": [[20]]},
        {"open": [["20", "30"]]},
        {"owed": [[OTHER, 7, 10, 21]]},
        {"owed": [[OTHER, 7, 10]]},
        {"owed": [["", 7, 10, 20]]},
        {"owed": [[OTHER, 7, 10, 20], [OTHER, 7, 10, 20]]},
        {"owed": [[OTHER, 7, 10, 20, None]]},
        {"owed": [[OTHER, 7, 10, 15, 1_763_744_384], [OTHER, 7, 15, 20, None]]},
        {"at": None},
        {"at": -1},
        {"at": 253_402_300_800},  # the year 10000, which could not be shown
        {"t": None},
        {"t": ""},
        {"t": "r-KTxfV4R7GbQpzlpK_tqAA"},
        {"t": "-KTxfV4R7GbQpzlpK_tqA+"},
        {"t": 7},
        {"m": "short"},
        {"past": []},
        {"past": [["a", number, -1] for number in range(9)]},
        {"past": [["a", 0]]},
        {"past": None},
        {"extra": 1},
        {"stream": STREAM},
    ],
    ids=str,
)
def test_what_is_not_exactly_a_record_counts_as_another_clients_commit(change: dict[str, Any]) -> None:
    assert read_commit(10, compact({**VALID, **change})) == Foreign(10)


@pytest.mark.parametrize("name", sorted(VALID))
def test_a_record_with_a_field_missing_counts_as_another_clients_commit(name: str) -> None:
    assert read_commit(10, compact({key: value for key, value in VALID.items() if key != name})) == Foreign(10)


@pytest.mark.parametrize(
    "text",
    [
        compact(VALID) + " ",
        compact(VALID) + "\x00",
        json.dumps(VALID),
        compact(dict(sorted(VALID.items()))),
        compact(VALID)[:-1] + ',"v":4}',
    ],
    ids=["a space behind it", "a NUL behind it", "spaces in it", "another order", "a key twice"],
)
def test_the_same_fields_in_another_form_count_as_another_clients_commit(text: str) -> None:
    assert read_commit(10, text) == Foreign(10)


@pytest.mark.parametrize("offset", [0, 9, 11, 30, 2**63 - 1])
def test_a_record_beside_another_offset_counts_as_another_clients_commit(offset: int) -> None:
    # Somebody moved the offset and kept the text, or copied the text from another partition.
    assert read_commit(offset, compact(VALID)) == Foreign(offset)


@example(7, "[" * 4000)
@example(7, '{"a":' * 800)
@example(7, "\udc80")
@example(7, '{"v":4,"s":"\\ud800"}')
@given(st.integers(0, 2**63 - 1), st.none() | st.text(max_size=6000))
def test_no_text_makes_reading_a_commit_fail(offset: int, text: str | None) -> None:
    assert read_commit(offset, text) == Foreign(offset)


@given(records(), st.data())
def test_no_damaged_record_makes_reading_a_commit_fail(record: CommitRecord, data: st.DataObject) -> None:
    text = record.metadata()
    at = data.draw(st.integers(0, len(text) - 1))
    damaged = text[:at] + data.draw(st.text(max_size=3)) + text[at + 1 :]
    held = read_commit(record.offset, damaged)
    assert held == Foreign(record.offset) or (isinstance(held, CommitRecord) and held.offset == record.offset)


class TestAnotherFormat:
    """What another version of the package writes into the same group, as in a rolling upgrade."""

    @pytest.mark.parametrize(
        "metadata",
        [
            '{"v":5,"s":"a91d0c77e2b4f635"}',
            '{"v":3,"s":"a91d0c77e2b4f635"}',
            '{"v":1,"s":"a91d0c77e2b4f635","n":4,"done":3,"next":100,"open":[],"owed":[["b",1,2,4]]}',
            '{"v":5,"s":"a91d0c77e2b4f635","n":4,"done":3,"next":100,"open":[[50,100]],"owed":[],"what":{"is":["new"]}}',
            '{"s":"a91d0c77e2b4f635","v":17}',
        ],
    )
    def test_is_recognized_by_its_version_and_its_stream(self, metadata: str) -> None:
        fields = json.loads(metadata)
        assert read_commit(50, metadata) == OtherFormat(50, fields["v"], "a91d0c77e2b4f635", fields.get("done", -1))

    @pytest.mark.parametrize(
        "other",
        [
            {"v": VERSION, "s": OTHER},
            {"v": 0, "s": OTHER},
            {"v": -1, "s": OTHER},
            {"v": True, "s": OTHER},
            {"v": VERSION - 1},
            {"v": VERSION + 1},
            {"v": VERSION + 1, "s": "not a name"},
            {"v": VERSION + 1, "s": 7},
            {"v": VERSION + 1, "s": OTHER, "done": -2},
            {"v": str(VERSION + 1), "s": OTHER},
            {"v": float(VERSION + 1), "s": OTHER},
            {"v": 2**31, "s": OTHER},
            [{"v": VERSION + 1, "s": OTHER}],
        ],
    )
    def test_is_nothing_else(self, other: object) -> None:
        assert read_commit(50, json.dumps(other)) == Foreign(50)
