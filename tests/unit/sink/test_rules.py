"""What a task and the driver decide by the tokens that they find: to write, to leave, or to refuse."""

from __future__ import annotations

import itertools

import pytest

from spark_groupsource.errors import (
    BatchUnknown,
    CheckpointBehindSink,
    SinkError,
    WrittenElsewhere,
)
from spark_groupsource.sink.rules import (
    NO_CHOICE,
    NOTHING,
    Choice,
    Place,
    Plan,
    check_batch,
    check_choice,
    check_elsewhere_again,
    is_behind,
    is_overtaken,
    may_be_a_replay,
    may_continue,
    plan_task,
)
from spark_groupsource.sink.token import (
    BatchToken,
    Token,
)
from tests.support.sink_tokens import ROWS, RUN, driver, token

HAD_ROWS = driver(7)._replace(wrote=frozenset({0}))


class TestBeforeATaskWrites:
    @pytest.mark.parametrize(
        ("number", "batch", "of_task", "of_driver", "plan"),
        [
            pytest.param(0, 8, token(7), None, Plan(True), id="a token of the micro-batch before: nothing is written"),
            pytest.param(0, 100, token(7), None, Plan(True), id="one of an earlier micro-batch: nothing is written"),
            pytest.param(0, 7, token(7), None, Plan(False, ROWS), id="one of this micro-batch says what is written"),
            pytest.param(0, 8, None, driver(7), Plan(True), id="the driver's says that it cannot have expired"),
            pytest.param(0, 7, None, driver(7), Plan(False, NOTHING), id="all tasks have written this one, this task nothing"),
            pytest.param(0, 7, token(3), driver(7), Plan(False, NOTHING), id="the driver's counts beside an older one"),
            pytest.param(1, 8, None, HAD_ROWS, Plan(True), id="a task that had no rows needs no token"),
            pytest.param(0, 8, token(7), HAD_ROWS, Plan(True), id="a task that had rows has its token"),
            pytest.param(0, 0, None, None, Plan(True), id="the first micro-batch needs none"),
        ],
    )
    def test_tokens_say_what_is_written(
        self, number: int, batch: int, of_task: Token | None, of_driver: BatchToken | None, plan: Plan
    ) -> None:
        elsewhere = () if of_task is None and of_driver is None else None
        assert plan_task(f"q-{number}", number, batch, of_task, of_driver, NO_CHOICE, elsewhere) == plan

    @pytest.mark.parametrize(
        ("of_task", "of_driver", "rewrite", "skip"),
        [
            pytest.param(None, HAD_ROWS, Plan(True), Plan(False), id="a task that had rows and has no token"),
            pytest.param(None, None, Plan(True), Plan(False), id="no token at all"),
            pytest.param(token(8), None, Plan(True, ROWS), Plan(False, ROWS), id="what is there is compared"),
            pytest.param(None, driver(8), Plan(True, NOTHING), Plan(False, NOTHING), id="the task had nothing"),
        ],
    )
    def test_a_choice_says_what_becomes_of_its_micro_batch(
        self, of_task: Token | None, of_driver: BatchToken | None, rewrite: Plan, skip: Plan
    ) -> None:
        assert plan_task("q-0", 0, 8, of_task, of_driver, Choice(rewrite=8), ()) == rewrite
        assert plan_task("q-0", 0, 8, of_task, of_driver, Choice(skip=8), ()) == skip

    @pytest.mark.parametrize("choice", [NO_CHOICE, Choice(rewrite=6), Choice(skip=6)], ids=["", "rewritten", "skipped"])
    @pytest.mark.parametrize(
        ("of_task", "of_driver"),
        [(token(7), None), (None, driver(7)), (token(3), driver(7))],
        ids=["the task's", "the driver's", "the driver's beside an older one of the task"],
    )
    def test_a_token_of_a_later_one_is_an_error(
        self, of_task: Token | None, of_driver: BatchToken | None, choice: Choice
    ) -> None:
        with pytest.raises(CheckpointBehindSink, match="micro-batch 7 is already in the topic"):
            plan_task("q-0", 0, 6, of_task, of_driver, choice)


def place(driver_at: int | None, *tasks_at: int, unreadable: bool = False) -> Place:
    return Place(
        "old",
        frozenset({"t"}),
        None if driver_at is None else driver(driver_at),
        {number: token(batch) for number, batch in enumerate(tasks_at)},
        unreadable,
    )


class TestWhatIsElsewhere:
    @pytest.mark.parametrize(
        ("batch", "of_task", "of_driver", "behind"),
        [
            (0, None, None, True),
            (8, None, None, True),
            (8, None, driver(7), False),
            (8, None, driver(8), False),
            (8, None, driver(6), True),
            (8, token(6), driver(6), True),
            (8, token(7), driver(6), True),
            (8, token(8), driver(6), False),
        ],
    )
    def test_is_looked_for_if_the_last_micro_batch_is_not_known_here(
        self, batch: int, of_task: Token | None, of_driver: BatchToken | None, behind: bool
    ) -> None:
        assert is_behind(batch, of_task, of_driver) == behind

    @pytest.mark.parametrize(
        ("batch", "of_driver", "elsewhere"),
        [(0, None, []), (8, None, [place(7, 7, 6)]), (8, driver(4), [place(7, 7), place(3)]), (8, None, [place(7)])],
        ids=["nothing", "the micro-batch before, finished", "and an older one", "without tasks"],
    )
    def test_lets_a_micro_batch_begin(self, batch: int, of_driver: BatchToken | None, elsewhere: list[Place]) -> None:
        assert plan_task("q-0", 0, batch, None, of_driver, NO_CHOICE, elsewhere) == Plan(True)

    @pytest.mark.parametrize(
        ("elsewhere", "error"),
        [
            ([place(7, 8, 7)], WrittenElsewhere),
            ([place(8, 8, 8)], WrittenElsewhere),
            ([place(7, 7), place(None, 8)], WrittenElsewhere),
            ([place(9, 9)], CheckpointBehindSink),
            ([place(6, 6)], BatchUnknown),
            ([place(None, 7)], BatchUnknown),
            ([place(7, 7, unreadable=True)], BatchUnknown),
            ([], BatchUnknown),
        ],
        ids=["half", "whole", "half in one of two", "later", "earlier", "no driver's", "no token of ours", "nothing"],
    )
    def test_refuses_it(self, elsewhere: list[Place], error: type[Exception]) -> None:
        with pytest.raises(error):
            plan_task("q-0", 0, 8, None, None, NO_CHOICE, elsewhere)

    def test_is_half_of_a_micro_batch_after_the_name_was_changed_back(self) -> None:
        with pytest.raises(WrittenElsewhere):
            plan_task("q-0", 0, 8, None, driver(7), NO_CHOICE, [place(7, 8)])
        with pytest.raises(WrittenElsewhere):
            check_elsewhere_again("q", 8, driver(7), [place(7, 8)])
        # A copy of the checkpoint has gone on with another prefix: that is not this one's.
        assert plan_task("q-0", 0, 8, None, driver(7), NO_CHOICE, [place(9, 9)]) == Plan(True)
        check_elsewhere_again("q", 8, driver(7), [place(9, 9)])


class TestAChoice:
    @pytest.mark.parametrize("choice", [Choice(rewrite=8), Choice(skip=8)], ids=["rewrite", "skip"])
    def test_counts_in_the_first_micro_batch_of_a_run(self, choice: Choice) -> None:
        """Later ones were not half written by an earlier run: no error has named them."""
        for last in (None, driver(7)._replace(run="another"), driver(8)):
            check_choice(8, RUN, last, choice, begun=True)
        check_choice(7, RUN, driver(6), choice, begun=True)
        with pytest.raises(SinkError, match="=8 is set, but this run has reached micro-batch 8 without an error"):
            check_choice(8, RUN, driver(7), choice, begun=True)


class TestAReplay:
    def test_of_a_driver_that_another_one_has_overtaken_is_refused(self) -> None:
        with pytest.raises(CheckpointBehindSink):
            check_batch(7, 2, 20, driver(8), {})

    def test_is_possible_in_the_first_micro_batch_of_a_run(self) -> None:
        assert may_be_a_replay(None, RUN)
        assert may_be_a_replay(driver(7), "another")
        assert not may_be_a_replay(driver(7), RUN)


class TestAKeptProducer:
    @pytest.mark.parametrize("last", [7, 8], ids=["the same micro-batch: a stage is retried", "a later one"])
    def test_the_task_looks_if_the_micro_batch_may_be_written(self, last: int) -> None:
        assert not may_continue(token(last), 7, RUN)

    def test_it_is_not_kept_any_longer_when_no_later_task_can_use_it(self) -> None:
        for last, batch in itertools.product(range(6), repeat=2):
            can_be_used = any(may_continue(token(last), later, RUN) for later in range(batch, 9))
            assert is_overtaken(token(last), batch, RUN) == (not can_be_used)
        assert not is_overtaken(token(0), 6, "another"), "another query may have it"
        assert not is_overtaken(None, 6, RUN), "a client of another kind"

    def test_the_task_looks_in_another_run_and_where_runs_have_no_name(self) -> None:
        """Between two runs the names may have changed, and been changed back."""
        assert not may_continue(token(6), 7, "another")
        assert not may_continue(token(6)._replace(run=""), 7, "")

    @pytest.mark.parametrize("choice", [Choice(rewrite=7), Choice(skip=7)])
    def test_the_task_looks_if_the_user_has_chosen(self, choice: Choice) -> None:
        assert not may_continue(token(6), 7, RUN, choice)

    def test_what_it_does_is_what_a_task_does_that_reads_this_token(self) -> None:
        for batch in range(1, 5):
            for last in range(5):
                if may_continue(token(last), batch, RUN):
                    assert plan_task("q-0", 0, batch, token(last), None) == Plan(write=True)
