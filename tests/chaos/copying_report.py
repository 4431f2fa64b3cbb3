"""Reports a run of `make chaos-sink`: its lines and its violations. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tests.chaos.visible import Copy, Part, StandStill, Strike, outside, struck_before

GRACE_S = 10.0
"""How long readers may wait after a strike. A task may also be visible in part for so long, which Kafka does not prevent: brokers
end a transaction in one partition after the other, and in some its rows are behind those of a transaction that is still open."""

REFUSALS = frozenset(
    {
        "BatchUnknown",
        "CheckpointBehindGroup",
        "CheckpointBehindSink",
        "CheckpointOfAnotherStream",
        "DataLossError",
        "TokenUnreadable",
        "UncommittedBatch",
        "WrittenElsewhere",
    }
)
"""Errors after which a restart alone does not help. A second driver may cause one: it looks at a checkpoint that moves on."""

NEVER = frozenset({"ReplayDiffers"})
"""The same, whatever was done: the rows are always the same."""

CONTESTED = "*"
"""Stands behind an error of a driver that was not alone."""


class Run(NamedTuple):
    """The observations of a run."""

    kinds: Sequence[str]
    """The kinds of strikes that were chosen."""
    strikes: Sequence[Strike]
    copy: Copy
    sent: int
    stills: Sequence[StandStill]
    starts: Mapping[str, int]
    errors: Counter[str]
    hidden: Sequence[int] = ()
    """Partitions with records that are not visible at the end."""
    faults: Sequence[str] = ()
    """What the harness itself did wrong."""

    def waited(self, still: StandStill | Part) -> float:
        """Return for how long it lasted outside strikes."""
        return outside(still.begin, still.end, self.strikes)

    def after(self, still: StandStill | Part) -> str:
        """Return the strike that it followed."""
        strike = struck_before(still.begin, still.end, self.strikes)
        return "no strike" if strike is None else f"{strike.kind} of {strike.struck}"


def lines(run: Run) -> Iterator[str]:
    """Yield the lines that are printed for a run."""
    counts = Counter(strike.kind for strike in run.strikes)
    for kind in run.kinds:
        after = [run.waited(still) for still in run.stills if run.after(still).startswith(f"{kind} ")]
        yield f"  {kind:16} {counts[kind]:3}   longest stand-still of readers after it {max(after, default=0.0):5.1f} s"
    yield f"starts: {dict(run.starts)}, failed with: {dict(run.errors.most_common())}"
    lost, doubled = len(run.copy.lost(run.sent)), len(run.copy.doubled())
    yield f"{run.sent:,} records by {run.copy.tasks:,} tasks, {lost:,} lost, {doubled:,} doubled"
    longest = max((run.waited(part) for part in run.copy.parts), default=0.0)
    yield (
        f"parts of a task that were visible: {len(_parts(run)) + len(run.copy.unfinished())} "
        f"(while its transaction ended, within {GRACE_S:.0f} s: {len(run.copy.parts) - len(_parts(run))}, "
        f"the longest {longest:.1f} s)"
    )
    if run.stills:
        still = max(run.stills, key=run.waited)
        yield (
            f"longest stand-still of the last stable offset: {run.waited(still):.1f} s in partition {still.partition}, "
            f"after {run.after(still)}"
        )


def violations(run: Run) -> list[str]:
    """Return the violations as sentences, or nothing if all is well."""
    return [
        *(f"lost: {some(run.copy.lost(run.sent))}" for _ in run.copy.lost(run.sent)[:1]),
        *(f"doubled: {some(run.copy.doubled())}" for _ in run.copy.doubled()[:1]),
        *(f"written twice: {task}" for task in run.copy.rewritten),
        *(f"{part.task} was visible in part for {run.waited(part):.1f} s after {run.after(part)}" for part in _parts(run)),
        *(
            f"{task} is visible in part at the end: {rows} rows of {'an unknown number' if total is None else total}"
            for task, (rows, total) in run.copy.unfinished().items()
        ),
        *(
            f"readers of partition {still.partition} waited for {run.waited(still):.1f} s after {run.after(still)}"
            for still in run.stills
            if run.waited(still) > GRACE_S
        ),
        *(f"records of partition {partition} are not visible at the end" for partition in run.hidden),
        *(f"the harness itself: {fault}" for fault in run.faults),
        *(f"a query refused to go on: {error}, {times} times" for error, times in run.errors.items() if _is_refusal(error)),
    ]


def _parts(run: Run) -> list[Part]:
    return [part for part in run.copy.parts if run.waited(part) > GRACE_S]


def _is_refusal(error: str) -> bool:
    return error in REFUSALS or error.rstrip(CONTESTED) in NEVER


def some(numbers: Sequence[int]) -> str:
    """Return the number of these records, and the first ones."""
    return f"{len(numbers)} records, the first ones {list(numbers[:5])}"
