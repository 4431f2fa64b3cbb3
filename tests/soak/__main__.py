"""The command: `make soak`, or `make soak SOAK="--hours 24"`.

It exits with 1 when a record was lost or doubled, a claim is left, or memory grows.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console

from benchmarks.environment import environment
from tests.harness.command import prepared
from tests.soak.probe import PROBE
from tests.soak.report import failures, judge, markdown, plot
from tests.soak.run import Result, play
from tests.soak.schedule import SHORTEST_S, Plan

LOOK_AT_PARENT_EVERY_S = 0.5
CLEAN_UP_LIMIT_S = 20.0
SOURCE = {"format": "groupkafka"}


@click.command()
@click.option("--minutes", default=20.0, show_default=True, type=click.FloatRange(min=SHORTEST_S / 60), help="How long it runs.")
@click.option("--hours", type=click.FloatRange(min=0.1), help="The same in hours; a release runs 24.")
@click.option("--protocol", default="classic", show_default=True, type=click.Choice(["classic", "consumer"]))
@click.option("--into-topics", is_flag=True, help="Write into topics, each row once, instead of files.")
@click.option("--seed", type=int, help="Repeats what happened in an earlier run.")
@click.option("--probe", is_flag=True, help="Have each runner write what its memory consists of (soak-probe-*.jsonl).")
@click.option("--output", type=click.Path(path_type=Path), default=Path("build"), show_default=True)
def main(
    minutes: float, hours: float | None, protocol: str, into_topics: bool, seed: int | None, probe: bool, output: Path
) -> None:
    """Run three queries of one group for a long time, disturb them, count every record and measure memory."""
    _end_with_parent()
    console = Console(width=150)
    plan = Plan((hours * 60 if hours is not None else minutes) * 60, random.randrange(10**6) if seed is None else seed, protocol)
    console.print(f"{plan.run_s / 60:.0f} minutes, seed {plan.seed}, {protocol}")
    with prepared("soak", console, output) as folder:
        source = PROBE if probe else SOURCE
        result = play(plan, folder, source, lambda line: console.print(line, markup=False), into_topics=into_topics)
        wrong = _write(result, folder, output)
    for one in wrong:
        console.print(one, markup=False, style="red")
    console.print(f"written to {output / 'soak.md'} and {output / 'soak.svg'}")
    sys.exit(1 if wrong else 0)


def _write(result: Result, folder: Path, output: Path) -> list[str]:
    """Write the report and return what is wrong with the run."""
    judged = judge(result)
    (output / "soak.md").write_text(markdown(result, judged, environment()), encoding="utf-8")
    plot(result, judged, output / "soak.svg")
    lines = (json.dumps(asdict(sample)) for sample in result.samples)
    (output / "soak-samples.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    for probed in folder.glob("drivers/*/soak-probe-*.jsonl"):
        shutil.copy(probed, output)
    wrong = failures(result, judged)
    logs = output / "soak-logs"
    shutil.rmtree(logs, ignore_errors=True)
    if wrong:
        logs.mkdir()
        (logs / "problem.txt").write_text("\n".join([*wrong, result.trace]), encoding="utf-8")
        for log in folder.glob("drivers/*/query.log"):
            shutil.copy(log, logs / f"{log.parent.name}.log")
    return wrong


def _end_with_parent() -> None:
    """End this process when its parent ends, even if that was killed. All processes of the run end with this one."""
    parent = os.getppid()
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK_AT_PARENT_EVERY_S)
        # In an orderly way, which removes the folder.
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(CLEAN_UP_LIMIT_S)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="parent watch", daemon=True).start()


if __name__ == "__main__":
    main()
