"""What a run writes: build/soak.md with its tables, build/soak.svg with memory over time, and the verdict."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.harness.command import table
from tests.soak.meter import JUDGED, Process, Role, Sample
from tests.soak.run import Result
from tests.soak.schedule import LONG_LIVED, Kind
from tests.soak.slope import Slope, Verdict, slope

JUDGED_FROM_S = 20 * 60.0
"""In a shorter run every process still grows: its caches and its workers are new."""
LIMIT_MB_PER_HOUR = 1.0
COVERED = 0.9
"""A process that was there for less of the last half than that is not judged."""
FEWEST = 3
KB_PER_MB = 1024
MIN_S = 60.0


@dataclass(frozen=True)
class Judged:
    """One process of the long-lived query in the last half of the run. `slope` is of its anonymous memory, in MB per hour."""

    process: Process
    samples: Sequence[Sample]
    slope: Slope
    covered: bool
    """Whether it was there for the whole half."""
    verdict: Verdict | None
    """`None` for a process whose growth is not judged."""


def judge(result: Result) -> list[Judged]:
    """Fit a line to the last half of each process of the long-lived query."""
    begin, end = result.plan.half_s, result.seconds or max((one.at for one in result.samples), default=0.0)
    by_process: dict[Process, list[Sample]] = defaultdict(list)
    for sample in result.samples:
        if sample.process.stream == LONG_LIVED and begin <= sample.at <= end:
            by_process[sample.process].append(sample)
    found = []
    for process, samples in sorted(by_process.items(), key=lambda item: (item[0].role.value, item[0].pid)):
        if len(samples) < FEWEST:  # for a moment after its fork a process has the command line of its parent
            continue
        fitted = slope([(one.at, one.anonymous / KB_PER_MB) for one in samples])
        covered = samples[-1].at - samples[0].at >= COVERED * (end - begin)
        long_enough = covered and result.plan.run_s >= JUDGED_FROM_S
        verdict = (fitted.verdict(LIMIT_MB_PER_HOUR) if long_enough else Verdict.TOO_SHORT) if process.role in JUDGED else None
        found.append(Judged(process, samples, fitted, covered, verdict))
    return found


def failures(result: Result, judged: Sequence[Judged]) -> list[str]:
    """Return all that makes the run fail."""
    grows = [
        f"the {one.process.role.value} of {one.process.stream} grows by {one.slope} MB an hour (at most {LIMIT_MB_PER_HOUR:.0f})"
        for one in judged
        if one.verdict is Verdict.GROWS
    ]
    nobody = [
        f"no {role.value} of {LONG_LIVED} was measured for the whole last half"
        for role in JUDGED
        if not any(one.process.role is role and one.covered for one in judged)
    ]
    return [*result.violations, *grows, *nobody]


def markdown(result: Result, judged: Sequence[Judged], environment: Mapping[str, object]) -> str:
    wrong = failures(result, judged)
    verdict = "".join(f"- **{one}**\n" for one in wrong) or "Nothing is wrong.\n"
    parts = {
        "Run": _run(result, environment),
        "Records": _records(result),
        f"Memory of query {LONG_LIVED} in the last half": _memory(result, judged),
        "All processes": _all_processes(result.samples),
        "What happened": _happened(result),
    }
    return f"# Soak\n\n{verdict}" + "".join(f"\n## {title}\n\n{text}" for title, text in parts.items())


def _run(result: Result, environment: Mapping[str, object]) -> str:
    plan = result.plan
    facts = {
        "minutes": f"{result.seconds / MIN_S:.1f} of {plan.run_s / MIN_S:.1f}",
        "protocol": plan.protocol,
        "sink": "topics, exactly once" if result.into_topics else "files",
        "seed": plan.seed,
        "Kafka": result.kafka,
        **environment,
        "partitions at the end": result.partitions,
        "micro-batches": ", ".join(f"{name}: {number:,}" for name, number in result.micro_batches.items()),
        "retention": f"{plan.retention_s:.0f} s, {result.deleted:,} records deleted",
        "drained after": f"{result.drain_s:.1f} s" if result.drained else f"not within {result.drain_s:.0f} s",
    }
    return table(("", ""), [(name, str(value)) for name, value in facts.items()])


def _records(result: Result) -> str:
    count = result.count
    header = ("records", "lost", "doubled", "changed", "unknown", "claims left", "ended by themselves")
    found = (count.lost, count.doubled, count.changed, count.unknown, result.unsettled, result.failures)
    return table(header, [tuple(f"{value:,}" for value in (count.records, *map(len, found)))])


def _memory(result: Result, judged: Sequence[Judged]) -> str:
    header = ("process", "samples", "effective", "anonymous MB", "MB an hour", "RSS", "PSS", "files", "threads", "verdict")
    rows = [_memory_row(one) for one in judged]
    text = (
        "\nAnonymous memory is what belongs to no file. Its slope is by least squares over the last half, with a 95 % interval. "
        f"There is one sample in {result.plan.sample_s:.0f} s. Neighbours are correlated, so the interval counts only the "
        f"effective number of samples. It is a failure when the whole interval is above {LIMIT_MB_PER_HOUR:.0f} MB an hour. "
        "RSS, PSS (MB), files and threads are the first and the last of the half.\n"
    )
    return table(header, rows) + text


def _memory_row(one: Judged) -> tuple[str, ...]:
    first, last = one.samples[0], one.samples[-1]
    return (
        f"{one.process.role.value} {one.process.pid}",
        str(one.slope.samples),
        f"{one.slope.effective:.0f}",
        f"{first.anonymous / KB_PER_MB:.1f} → {last.anonymous / KB_PER_MB:.1f}",
        str(one.slope),
        f"{first.rss / KB_PER_MB:.0f} → {last.rss / KB_PER_MB:.0f}",
        f"{first.pss / KB_PER_MB:.0f} → {last.pss / KB_PER_MB:.0f}",
        f"{first.files} → {last.files}",
        f"{first.threads} → {last.threads}",
        one.verdict.value if one.verdict is not None else "",
    )


def _all_processes(samples: Sequence[Sample]) -> str:
    by_role: dict[tuple[str, str], list[Sample]] = defaultdict(list)
    for sample in samples:
        by_role[sample.process.stream, sample.process.role.value].append(sample)
    header = ("query", "process", "how many", "highest RSS MB", "most files", "most threads")
    rows = [
        (
            stream,
            role,
            str(len({one.process.pid for one in found})),
            f"{max(one.rss for one in found) / KB_PER_MB:.0f}",
            str(max(one.files for one in found)),
            str(max(one.threads for one in found)),
        )
        for (stream, role), found in sorted(by_role.items())
    ]
    return table(header, rows)


def _happened(result: Result) -> str:
    rows = [
        (f"{one.at / MIN_S:.1f}", one.disturbance.kind.value, one.disturbance.target, f"{one.back_s:.0f} s")
        for one in result.happened
    ]
    own = "".join(
        f"\n- minute {one.at / MIN_S:.1f}: {one.stream} ended by itself{' (excused)' if one.excused else ''}: `{one.error[:200]}`"
        for one in result.failures
    )
    return table(("minute", "what", "target", "until it was back"), rows) + (own + "\n" if own else "")


def plot(result: Result, judged: Sequence[Judged], path: Path) -> None:
    """Plot anonymous memory over time: one panel for each kind of process, and a vertical line for each disturbance."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams["svg.hashsalt"] = "soak"
    roles = (Role.RUNNER, Role.WORKER, Role.JVM)
    figure = Figure(figsize=(11, 8), layout="constrained")
    colours = {Kind.GROW: "tab:green", Kind.KILL_BROKER: "tab:red", Kind.RESTART_BROKER: "tab:red"}
    for role, axes in zip(roles, figure.subplots(len(roles), 1, sharex=True), strict=True):
        for one in result.happened:
            axes.axvline(one.at / MIN_S, color=colours.get(one.disturbance.kind, "tab:grey"), linewidth=0.6, alpha=0.6)
        series: dict[Process, list[Sample]] = defaultdict(list)
        for sample in result.samples:
            if sample.process.role is role:
                series[sample.process].append(sample)
        for process, samples in series.items():
            long_lived = process.stream == LONG_LIVED
            at, megabytes = [one.at / MIN_S for one in samples], [one.anonymous / KB_PER_MB for one in samples]
            axes.plot(at, megabytes, color="tab:blue" if long_lived else "tab:orange", linewidth=1.2 if long_lived else 0.7)
        for found in judged:
            if found.process.role is role:
                ends = found.samples[0].at, found.samples[-1].at
                line = [found.slope.intercept + found.slope.per_hour / 3600 * at for at in ends]
                axes.plot([at / MIN_S for at in ends], line, color="black", linewidth=1.0, linestyle="--")
        axes.set_ylabel(f"{role.value}, MB")
        axes.grid(visible=True, axis="y", alpha=0.3)
    axes.set_xlabel("minutes")
    figure.suptitle(
        f"Anonymous memory: query {LONG_LIVED} blue, the others orange, dashed: the fitted line. "
        "Vertical: a query was struck (grey), a broker (red), the topic grew (green)",
        fontsize=9,
    )
    figure.savefig(path, format="svg", metadata={"Date": None})
