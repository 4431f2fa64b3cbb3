"""`groupkafka demo`: the story on this terminal, and what it leaves behind when it fails."""

from __future__ import annotations

import importlib.util
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType

import click

from spark_groupsource.cli.demo.story import Story
from spark_groupsource.cli.demo.view import View, print_count, print_next_steps
from spark_groupsource.cli.render import console_for
from spark_groupsource.dev_broker.java import find_java
from spark_groupsource.errors import DemoFailed, GroupKafkaError


@click.command()
def demo() -> None:
    """Two Spark queries share a topic as one consumer group, on this machine, in about a minute.

    A broker, a live producer and two queries are started, each in a process of its own. One query is stopped in the
    middle of its work: the other takes its partitions over, the first comes back, and in the end every record is
    counted. Nothing is left behind. The first run downloads Apache Kafka's jars (less than a minute).

    \b
    Example:
      groupkafka demo
    """
    run()


def run() -> None:
    """Run the demo on this terminal.

    Raises:
        GroupKafkaError: something is missing, or failed, or not every record was counted once. What the queries wrote, their
            logs included, then stays, and the message tells where.
    """
    _require_pyspark()
    find_java()
    signal.signal(signal.SIGTERM, _interrupt)
    console = console_for(sys.stdout)
    folder = Path(tempfile.mkdtemp(prefix="groupkafka-demo-"))
    try:
        with View(console) as view, Story(view, folder) as story:
            result = story.tell()
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
        raise GroupKafkaError("The demo needs PySpark, which is not installed: pip install 'spark-groupsource[spark]'")


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    # The same way out as Ctrl-C: whatever was started is ended.
    raise KeyboardInterrupt
