"""Tokens and marks: what is read of a commit, and what is refused or belongs to another client."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from spark_groupsource.errors import TokenUnreadable
from spark_groupsource.handoff.commit_record import CommitRecord, OpenRange
from spark_groupsource.sink.token import (
    BatchToken,
    Committed,
    Mark,
    Opener,
    Token,
    kind_of,
    mark_in,
    newest_batch_token,
    newest_token,
    own_mark,
)
from tests.support.sink_tokens import QUERY, RUN, driver, token

MARK = Mark(QUERY, RUN, Opener(1_700_000_000, "host-1.example", 4711))


FORMATS = Path(__file__).parents[1] / "formats"


READ: dict[str, Callable[..., object]] = {
    "sink_token": newest_token,
    "sink_driver_token": newest_batch_token,
    "sink_mark": mark_in,
}


READ_PERMANENTLY: dict[str, Token | BatchToken | Mark] = {
    "sink_token": token(7),
    "sink_driver_token": driver(7)._replace(wrote=frozenset({0, 1, 5})),
    "sink_mark": MARK,
}


class TestMarks:
    def test_come_back_as_they_were_committed(self) -> None:
        for mark in (MARK, MARK._replace(open=None)):
            assert mark_in([Committed(mark.offset, mark.metadata())], "g", QUERY) == mark
        assert mark_in([], "g", QUERY) is None

    def test_one_of_several_topics_that_is_open_counts(self) -> None:
        found = [Committed(one.offset, one.metadata()) for one in (MARK._replace(open=None), MARK)]
        assert mark_in(found, "g", QUERY) == mark_in(found[::-1], "g", QUERY) == MARK

    @pytest.mark.parametrize(
        "opener",
        ["7", "[]", "{}", '{"at":1,"host":"<b>","pid":1}', '{"at":-1,"host":"a","pid":1}', '{"at":1,"host":"a","pid":true}'],
    )
    def test_of_another_client_are_refused(self, opener: str) -> None:
        text = MARK._replace(open=None).metadata().replace("null", opener)
        with pytest.raises(TokenUnreadable):
            mark_in([Committed(1, text)], "g", QUERY)


class TestTokens:
    def test_the_newest_of_several_topics_counts_and_comes_back_as_it_was_committed(self) -> None:
        found = [Committed(one.offset, one.metadata()) for one in (token(3), token(5), token(4))]
        assert newest_token(found, "g", QUERY) == token(5)

    @pytest.mark.parametrize(
        "metadata",
        [
            "",
            "{",
            "[]",
            "{}",
            '{"v":4,"q":"%s","rows":1,"sum":"00"}',
            '{"v":4,"q":"%s","rows":-1,"sum":"0000000000000abc","run":""}',
            '{"v":4,"q":"%s","rows":true,"sum":"0000000000000abc","run":""}',
            '{"v":4,"q":"%s","rows":1,"sum":"0000000000000ABC","run":""}',
            '{"v":4,"q":"%s","rows":1,"sum":"0000000000000abc","run":"<script>"}',
            '{"v":4,"q":"%s","rows":1,"sum":"0000000000000abc","run":"","more":1}',
            '{"v":"4","rows":1,"sum":"0000000000000abc","run":""}',
            "[" * 5000,
            '{"v":4,"q":"%s","rows":1,"sum":"0000000000000abc","run":"' + "0" * 600 + '"}',
        ],
    )
    def test_what_another_client_wrote_is_refused(self, metadata: str) -> None:
        with pytest.raises(TokenUnreadable, match="no other client may commit"):
            newest_token([Committed(4, metadata.replace("%s", QUERY))], "g", QUERY)

    def test_what_another_query_wrote_is_refused(self) -> None:
        """Its groups have other names. Somebody has copied it."""
        kept: list[tuple[Callable[..., object], Token | BatchToken | Mark]] = [
            (newest_token, token(3)),
            (newest_batch_token, driver(3)),
            (mark_in, MARK),
        ]
        for read, one in kept:
            found = [Committed(one.offset, one.metadata())]
            assert read(found, "g", QUERY) == one
            with pytest.raises(TokenUnreadable):
                read(found, "g", "another")

    def test_an_offset_that_no_token_has_is_refused(self) -> None:
        with pytest.raises(TokenUnreadable):
            newest_token([Committed(0, token(0).metadata())], "g", QUERY)

    @pytest.mark.parametrize(
        ("wrote", "text"), [(range(200), "[[0,200]]"), ({0, 1, 5}, "[[0,2],[5,6]]"), ((), "[]"), (range(0, 4000, 2), "null")]
    )
    def test_the_drivers_says_which_tasks_had_rows_if_there_is_room(self, wrote: Iterable[int], text: str) -> None:
        given = driver(7)._replace(wrote=frozenset(wrote))
        assert f'"wrote":{text}' in given.metadata()
        assert len(given.metadata()) < 4000
        read = newest_batch_token([Committed(given.offset, given.metadata())], "g", QUERY)
        assert read == given._replace(wrote=None if text == "null" else frozenset(wrote))

    @pytest.mark.parametrize("wrote", ["7", "[7]", "[[1,2,3]]", "[[0,1000001]]", "[[-1,2]]", "[[0,true]]", '[["0","1"]]'])
    def test_what_another_client_wrote_about_tasks_is_refused(self, wrote: str) -> None:
        text = driver(7).metadata().replace('"wrote":null', f'"wrote":{wrote}')
        with pytest.raises(TokenUnreadable):
            newest_batch_token([Committed(8, text)], "g", QUERY)

    @pytest.mark.parametrize("version", [1, 5])
    @pytest.mark.parametrize("read", [newest_token, newest_batch_token, mark_in])
    def test_another_format_says_so(self, read: Callable[..., object], version: int) -> None:
        with pytest.raises(TokenUnreadable, match=f"^The offset of group g cannot be read: .* in format {version},"):
            read([Committed(4, f'{{"v":{version},"anything":1}}')], "g", QUERY)

    @pytest.mark.parametrize("name", ["sink_token", "sink_driver_token", "sink_mark"])
    def test_every_format_of_a_release_is_read_permanently(self, name: str) -> None:
        kept = json.loads((FORMATS / f"{name}_v4.json").read_text())
        assert READ[name]([Committed(kept["offset"], kept["metadata"])], "g", QUERY) == READ_PERMANENTLY[name]
        assert READ_PERMANENTLY[name].metadata() == kept["metadata"]


class TestMetadataInAnyGroup:
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
    def test_tokens_and_marks_are_known_also_of_other_versions(self, metadata: str, kind: str) -> None:
        assert kind_of(metadata) == kind

    @pytest.mark.parametrize(
        "metadata",
        [
            MARK.metadata().replace(QUERY, "x"),
            MARK.metadata().replace(f'"{QUERY}"', "7"),
            MARK.metadata().replace("host-1.example", "\u2028"),
            MARK.metadata().replace("1700000000", str(2**63 - 1)),
            MARK.metadata().replace("1700000000", "253402300800"),
            "[" * 100_000,
            None,
        ],
    )
    def test_a_mark_is_shown_only_if_all_of_it_is_the_sinks(self, metadata: str | None) -> None:
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
    def test_what_readers_commit_is_not(self, metadata: str | None) -> None:
        assert kind_of(metadata) is None
