"""`make demo`: runs the story of the demo on this terminal, and keeps its files if it fails."""

from __future__ import annotations

import importlib.util
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType

import click

from devtools import program
from devtools.broker.java import find_java
from devtools.demo.story import Story
from devtools.demo.view import View, print_count, print_next_steps
from devtools.errors import DemoFailed
from spark_groupsource.cli.render import console_for
from spark_groupsource.errors import GroupKafkaError


@click.command()
def demo() -> None:
    """Watch two Spark queries share a topic as one consumer group, on this machine, in about a minute.

    The demo starts a broker, a live producer and two queries, each in its own process. It stops one query in the middle of its
    work. The other query takes over its partitions, and then the first query returns. At the end, the demo counts every record
    and deletes everything. The first run downloads Apache Kafka's jars, which takes less than a minute.

    If something is missing or fails, or if not every record was counted once, the demo keeps the outputs and logs, and prints
    where they are.
    """
    _require_pyspark()
    find_java()
    signal.signal(signal.SIGTERM, _interrupt)
    console = console_for(sys.stdout)
    folder = Path(tempfile.mkdtemp(prefix="groupkafka-demo-"))
    try:
        with View(console) as view, Story(view, folder) as story:
            result = story.run()
    except GroupKafkaError as failed:
        raise DemoFailed(f"{failed}\nAll logs: {folder}") from failed
    except KeyboardInterrupt:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    print_count(result, console)
    if not result.exactly_once:
        raise DemoFailed(f"The outputs, the checkpoints and the logs: {folder}")
    shutil.rmtree(folder, ignore_errors=True)
    print_next_steps(console)


def _require_pyspark() -> None:
    if importlib.util.find_spec("pyspark") is None:
        raise GroupKafkaError("The demo needs PySpark, which is not installed. Run the demo with `make demo`.")


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    # Do what Ctrl-C does, so that everything that was started is stopped.
    raise KeyboardInterrupt


if __name__ == "__main__":
    program.run(demo, "python -m devtools.demo")
