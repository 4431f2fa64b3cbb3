"""The story of the demo: what happens, and in which order. Only this module controls all processes.

Two queries, A and B, share six partitions. B is interrupted in the middle of its work. A takes over, and the ranges that B had
claimed are held for B. B restarts from its checkpoint and reads these ranges. Then the producer stops, both queries read the
rest, and every record is counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from devtools.broker import Cluster
from devtools.demo.count import Count, count_records
from devtools.demo.producer import LiveProducer
from devtools.demo.query_state import Query, Rate
from devtools.demo.view import Scene, View, listed
from devtools.errors import DemoFailed
from spark_groupsource.brokers.group_admin_process import GroupAdminProcess
from spark_groupsource.brokers.group_view import GroupView
from spark_groupsource.errors import BrokerError
from spark_groupsource.handoff.commit_record import OwedRange
from spark_groupsource.partition import TopicPartition
from spark_groupsource.patience import Deadline

if TYPE_CHECKING:
    from typing_extensions import Self

TOPIC = "orders"
GROUP = "demo"
PARTITIONS = 6

TOGETHER_S = 3.0
"""How long the demo shows both queries at work."""
ALONE_S = 2.0
"""How long the demo shows A alone."""
AGAIN_S = 1.0
"""How long the demo shows both queries after B has come back."""

LOOK_EVERY_S = 0.1
"""How often the story checks for events of its processes, in seconds."""

LOOK_AT_GROUP_EVERY_S = 0.5
"""How often the story describes the group, in seconds."""

STEP_LIMIT_S = 120.0
"""The time limit of a step. Even two Spark processes on two slow cores need much less."""


class Story:
    """One run of the demo. As a context manager, it always stops everything that it has started."""

    def __init__(self, view: View, folder: Path) -> None:
        self._view = view
        self._folder = folder
        self._cleanup = ExitStack()
        self._producer: LiveProducer | None = None
        self._group_admin: GroupAdminProcess | None = None
        self._group: GroupView | None = None
        self._look_at = 0.0
        self._sent = 0
        self.bootstrap_servers: str | None = None
        """The broker's address, once it runs. Read it from any thread."""
        self._produced = Rate()
        # Both Spark processes start while the broker's jars are resolved, since they take as long as everything else.
        self.a = Query("A", folder / "A")
        self.b = Query("B", folder / "B")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        for query in (self.a, self.b):
            query.close()
        self._cleanup.close()

    def run(self) -> Count:
        """Run the story from the first record to the count.

        Raises:
            DemoFailed: A process failed, or a step took longer than two minutes.
            BrokerStartError: The broker cannot be started.
        """
        options = self._begin()
        self._share(options, "A and B share the topic")
        self.b.prepare()  # its next Spark starts beside what is shown now
        self._watch_for(TOGETHER_S)
        self._stop_b()
        self._watch_for(ALONE_S)
        self._bring_b_back(options)
        self._watch_for(AGAIN_S)
        return self._finish()

    # The chapters.

    def _begin(self) -> Callable[[Query], dict[str, str]]:
        self._view.event("starting two Spark processes and Apache Kafka (the first run downloads its jars)")
        cluster = self._cleanup.enter_context(Cluster(progress=self._view.progress))
        cluster.create_topic(TOPIC, PARTITIONS)
        self._view.event(
            f"Apache Kafka {cluster.version} at {cluster.bootstrap_servers}, topic {TOPIC} with {PARTITIONS} partitions"
        )
        self._group_admin = self._cleanup.enter_context(
            GroupAdminProcess({"bootstrap.servers": cluster.bootstrap_servers, "client.id": "demo"})
        )
        self.bootstrap_servers = cluster.bootstrap_servers
        self._producer = LiveProducer(cluster.bootstrap_servers, TOPIC)
        self._cleanup.callback(self._producer.cancel)

        def options(query: Query) -> dict[str, str]:
            return {
                "kafka.bootstrap.servers": cluster.bootstrap_servers,
                "kafka.group.id": GROUP,
                "kafka.client.id": f"query-{query.name}",
                "kafka.session.timeout.ms": "6000",
                "kafka.heartbeat.interval.ms": "300",
                "subscribe": TOPIC,
                "startingOffsets": "earliest",
            }

        return options

    def _share(self, options: Callable[[Query], dict[str, str]], what: str) -> None:
        for query in (self.a, self.b):
            query.process.begin(options(query))
        self._until(lambda: all(query.status == "running" for query in (self.a, self.b)), "both queries run")
        assert self._producer is not None  # noqa: S101 -- made by the first chapter
        self._producer.start()
        self._until(self._both_share, what)
        self._view.event(f"{what}: A reads {listed(self.a.partitions)}, B reads {listed(self.b.partitions)}", turn=True)

    def _both_share(self) -> bool:
        shares = {len(query.partitions) for query in (self.a, self.b)}
        return shares == {PARTITIONS // 2} and not self.a.partitions & self.b.partitions

    def _stop_b(self) -> None:
        asked = time.time()
        self._view.event("interrupting query B in the middle of its work", turn=True)
        self.b.process.interrupt()
        self._until(lambda: self.b.has_stopped, "B stops")
        self._view.event("query B stopped")
        self.b.respawn()
        self._until(lambda: len(self.a.partitions) == PARTITIONS, "A takes over")
        self._view.event(
            f"A took over {self.a.planned_at - asked:.1f} s after B was interrupted: "
            "its first micro-batch with all six partitions began",
            turn=True,
        )
        self._look()
        held = self._held_for_b()
        if held:
            self._view.event("held for B: " + ", ".join(f"{partition} {claim.range}" for partition, claim in held.items()))
        else:
            self._view.event("B had confirmed everything that it claimed: nothing is held for it")

    def _held_for_b(self) -> dict[TopicPartition, OwedRange]:
        partitions = self._group.partitions if self._group is not None else ()
        return {view.partition: claim for view in partitions for claim in view.open + view.owed if claim.stream == self.b.stream}

    def _bring_b_back(self, options: Callable[[Query], dict[str, str]]) -> None:
        held, generation = self._held_for_b(), self.a.generation or 0
        self._view.event("starting query B again on its checkpoint", turn=True)
        self.b.process.begin(options(self.b))
        # A micro-batch in its progress was finished, so only the confirmation is missing.
        for plan in {claim.plan for claim in held.values()} - self.b.rows_of_plan.keys():
            self._until(lambda plan=plan: plan in self.b.rows_of_plan, "B reads what is held for it")  # type: ignore[misc]
            owed = sum(claim.range.size for claim in held.values())
            self._view.event(
                f"B read the micro-batch that was interrupted: {self.b.rows_of_plan[plan]} records; {owed} were held for it"
            )
        self._until(lambda: self._both_share() and (self.b.generation or 0) > generation, "A and B share the topic again")
        self._view.event(f"both share again: A reads {listed(self.a.partitions)}, B reads {listed(self.b.partitions)}", turn=True)

    def _finish(self) -> Count:
        assert self._producer is not None  # noqa: S101
        produced = self._producer.stop()
        self._view.event(f"producer stopped after {produced} records; both queries now read to the end")
        self._until(self._drained, "lag 0 and nothing held")
        self._view.event("lag 0, nothing held; stopping both queries")
        for query in (self.a, self.b):
            query.process.stop()
        self._until(lambda: self.a.has_stopped and self.b.has_stopped, "both queries stop")
        self._until(lambda: self._group is not None and not self._group.members, "both members leave the group")
        return count_records(produced, {query.name: query.output for query in (self.a, self.b)})

    def _drained(self) -> bool:
        group = self._group
        if group is None or len(group.partitions) < PARTITIONS:
            return False
        return all(view.lag == 0 and not view.open + view.owed for view in group.partitions)

    # Watching.

    def _watch_for(self, seconds: float) -> None:
        end = Deadline(seconds)
        while not end.over:
            self._tick()

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = Deadline(STEP_LIMIT_S)
        while not condition():
            if deadline.over:
                logs = "\n".join(f"The end of {query.process.log}:\n{query.process.last_lines()}" for query in (self.a, self.b))
                raise DemoFailed(f"Still waiting after {STEP_LIMIT_S:.0f} s: {what}.\n{logs}")
            self._tick()

    def _tick(self) -> None:
        """Record and show everything that is new."""
        time.sleep(LOOK_EVERY_S)
        for query in (self.a, self.b):
            ended = query.process.ended
            for event in query.process.events():
                change = query.take(event)
                if change is not None:
                    self._view.event(change)
            if ended and query.status != "stopped":
                raise query.failed("its process ended unexpectedly.")
        if time.monotonic() >= self._look_at:
            self._look()
        sent = self._producer.sent if self._producer is not None else 0
        self._produced.add(sent - self._sent)
        self._sent = sent
        self._view.show(Scene((self.a.scene(), self.b.scene()), sent, self._produced.per_second(), self._group))

    def _look(self) -> None:
        """Describe the group, as `groupkafka describe` does."""
        self._look_at = time.monotonic() + LOOK_AT_GROUP_EVERY_S
        if self._group_admin is not None:
            # The group does not exist yet, or its coordinator is busy. The story asks again soon.
            with suppress(BrokerError):
                self._group = self._group_admin.describe(GROUP)
