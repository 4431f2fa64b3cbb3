"""conf/copy_topic.py: two queries of one group copy a topic; one is killed and started again; each record is there once."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from devtools.broker import Cluster
from tests.conftest import MakeTopic, Produce
from tests.support.committed import read_committed
from tests.support.group_offsets import total_lag
from tests.support.processes import processes_with
from tests.support.spark_process import ROOT, SparkProcess
from tests.support.waiting import until

LIMIT_S = 180.0


def properties(name: str, **changed: str) -> str:
    """A file of conf/ with other values for some options."""
    lines = (ROOT / "conf" / name).read_text().splitlines()
    wanted = {option.replace("_", "."): value for option, value in changed.items()}
    kept = [line for line in lines if line.partition("=")[0].strip() not in wanted]
    return "\n".join([*kept, *(f"{option} = {value}" for option, value in wanted.items())])


@pytest.mark.long
def test_a_killed_copy_is_started_again_and_each_record_is_there_once(
    cluster: Cluster, topic: MakeTopic, produce: Produce, tmp_path: Path
) -> None:
    source, target = topic(4), topic(3)
    group, mark = f"copies-{source}", f"COPY_{os.getpid()}_{source}"
    here = {"kafka_bootstrap_servers": cluster.bootstrap_servers}
    reading = {"kafka_group_id": group, "subscribe": source, "kafka_session_timeout_ms": "6000", "maxOffsetsPerTrigger": "40"}
    # Whatever was claimed waits for its query: each record is copied by one of the two.
    (tmp_path / "source").write_text(properties("orders.properties", **here, **reading, heldClaims="hold"))
    (tmp_path / "sink").write_text(properties("copy_topic.properties", **here, topic=target))
    sent = 0

    def send(count: int) -> None:
        nonlocal sent
        for partition in range(4):
            produce(source, [(None, str(sent + 4 * number + partition)) for number in range(count)], partition)
        sent += 4 * count

    def start(name: str, number: int) -> SparkProcess:
        command = [sys.executable, str(ROOT / "conf" / "copy_topic.py"), "source", "sink", name]
        process = SparkProcess(f"{name}-{number}", tmp_path, command, {mark: name})
        all_of_it.callback(process.close)
        return process

    def copied() -> int:
        return len(read_committed(cluster, target))

    with ExitStack() as all_of_it:
        send(100)
        a, b = start("A", 1), start("B", 1)
        until(lambda: copied() >= 100, "the first records are copied", LIMIT_S)
        # The driver and all that it has started, at once: nothing of it can end well.
        for pid in processes_with(f"{mark}=A"):
            os.kill(pid, signal.SIGKILL)
        until(lambda: a.ended, "A has ended", LIMIT_S)
        send(100)
        start("A", 2)
        until(lambda: not b.ended and copied() >= sent and total_lag(cluster, group, source) == 0, "all is copied", LIMIT_S)
    assert sorted(map(int, read_committed(cluster, target))) == list(range(sent))
