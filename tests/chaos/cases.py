"""The cases: what happens to which query, and at which step. Each is a function of one run, which the checker judges."""

from __future__ import annotations

import os
import signal
import time
from functools import partial

from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]

from spark_groupsource.group.coordinator_watch import COMPARE_AGAIN_S, COMPARE_EVERY_S, DISAGREES_S
from tests.chaos.run import ALLOWANCE_S, PARTITIONS, TRIGGER_S, Case, Run, away
from tests.chaos.stream import NO_OTHER_TRIGGER, TRIGGER, Stream
from tests.chaos.ways import EARLY
from tests.harness.driver import AVAILABLE_NOW
from tests.harness.pool import PATIENCE_S
from tests.harness.proxy import Direction
from tests.harness.steps import How, Step
from tests.support.lost_answers import lose_assignment
from tests.support.waiting import until

MAX_POLL_MS = 7000
LONG_TRIGGER_S = 15.0
FIRST_BATCH_S = 8.0
"""What the first micro-batch of a query takes longer than its later ones."""
BETWEEN_S = 3.0
"""How long a query waits for a trigger that does not come, before it is stopped."""
AWAY_S = 4.0
"""How long a query that was stopped stays away, and nothing may be claimed."""
LONG_DRAIN_S = 60.0
NOTICED_S = COMPARE_EVERY_S + DISAGREES_S + COMPARE_AGAIN_S
"""After this time at most a query has noticed that an answer of its coordinator was lost."""
IN_MICRO_BATCH_S = 2.0
"""How long a micro-batch goes on after a partition has begun to drain."""
AFTER_DRAIN_S = TRIGGER_S + ALLOWANCE_S
"""How long after the end of the micro-batch the newcomer has claimed what was draining."""
PROMPT = {"handoff.drainTimeout": "3s"}
PAUSABLE = {"kafka.max.poll.interval.ms": str(MAX_POLL_MS), "handoff.drainTimeout": "3s"}


def killed_at(run: Run, step: Step) -> None:
    """Kill the driver at a step of a live micro-batch."""
    a, _ = run.pair()
    a.hold_at(step)
    strike(run, a)
    run.finish_with(a)


def killed_before_confirmation(run: Run) -> None:
    """Kill the driver when the next micro-batch begins, before or just after the group learns that the last one is durable.

    If the runner can learn this between triggers, the consumer's thread closes the claims although the main thread is held.
    """
    a, _ = run.pair()
    a.hold_at(Step.BEFORE_CONFIRMATION)
    if run.way in EARLY:
        until(lambda: not run.claimed_by(a), "A's last micro-batch is closed, and its main thread is held", PATIENCE_S)
    else:
        assert run.claimed_by(a), "the group knows of A's last micro-batch"
    strike(run, a)
    run.finish_with(a)


def killed_before_closing(run: Run) -> None:
    """Kill the driver in a long trigger, between the report that a plan is durable and the commit that closes it."""
    a, b = run.stream("A", trigger=NO_OTHER_TRIGGER), run.stream("B")
    run.begin(b)
    a.arm(Step.BEFORE_CLOSING)
    a.start()
    a.wait_at(Step.BEFORE_CLOSING)
    assert a.micro_batches == 1, f"{a.micro_batches} micro-batches are in the commit log"
    assert run.claimed_by(a), "A's claims were closed before the commit that closes them"
    strike(run, a)
    a.every(TRIGGER)
    run.finish_with(a)
    run.read_again()


def stopped_between_triggers(run: Run) -> None:
    """Stop a query as soon as its micro-batch is finished, and again while it is waiting for a trigger that does not come."""
    a = run.stream("A")
    run.feed()
    a.start_for_one_micro_batch()
    run.stop_and_look(a, AWAY_S)
    a.start_for_one_micro_batch()
    time.sleep(BETWEEN_S)
    assert not run.unconfirmed(), f"between two triggers: {run.unconfirmed()}"
    run.stop_and_look(a, AWAY_S)
    run.fault(a)
    run.allow(FIRST_BATCH_S)
    a.every(TRIGGER)
    a.start()
    run.until_recovered()
    run.finish()
    run.read_again()


def scaled_in(run: Run) -> None:
    """Stop one of two queries between two triggers, forever."""
    a, b = run.stream("A"), run.stream("B")
    run.feed()
    run.begin(a)
    b.start_for_one_micro_batch()
    assert b.granted(), "B's only micro-batch had no records"
    if run.number % 2 == 1:
        time.sleep(BETWEEN_S)
    run.fault(b)
    run.retire(b)
    run.until_recovered()
    run.finish()
    assert not run.ever_owed, run.ever_owed[0]
    run.read_again()


def drain_beside_a_long_trigger(run: Run) -> None:
    """Start a query while another one is in its only micro-batch: partitions that move drain until it ends, but no longer."""
    a, b = run.stream("A", {"handoff.drainTimeout": f"{LONG_DRAIN_S:.0f}s"}, trigger=NO_OTHER_TRIGGER), run.stream("B")
    run.feed()
    a.arm(Step.IN_TASK)
    a.arm(Step.IN_DRAIN, How.MARK)
    a.start()
    a.wait_at(Step.IN_TASK)
    b.start()
    a.wait_at(Step.IN_DRAIN)
    time.sleep(IN_MICRO_BATCH_S)
    assert not b.granted(), "B was granted what A had claimed"
    assert run.claimed_by(a), "A's claims were closed before the end of its micro-batch"
    run.fault(a, b)
    run.allow(FIRST_BATCH_S)
    a.release(Step.IN_TASK)
    a.until_micro_batches(1)
    (ended,) = (one.at for one in a.durable())
    until(lambda: len(b.owned) == PARTITIONS // 2, "B has its share", PATIENCE_S)
    took = b.granted()[0]["at"] - ended
    run.log.append("drained", seconds=took)
    assert took <= AFTER_DRAIN_S, f"B claimed its share {took:.1f} s after the end of A's micro-batch"
    assert a.micro_batches == 1, "A's micro-batch was not its only one"
    run.until_durable_since(ended, b.owned)
    run.over()
    assert not run.ever_owed, run.ever_owed[0]
    a.stop()
    a.every(TRIGGER)
    a.start()
    run.finish()
    run.read_again()


def strike(run: Run, stream: Stream, *, bystanders: bool = True) -> None:
    """Kill the driver, together with its runner, whose session then has to expire. In every second run, the runner survives."""
    run.fault(stream, bystanders=bystanders)
    stream.kill(whole=run.number % 2 == 1)


def killed_in_drain(run: Run) -> None:
    """Kill the owner of a partition that is moving to B, while the claim is open."""
    a, b = run.stream("A"), run.stream("B")
    run.begin(a)
    a.hold_at(Step.AFTER_CLAIM)
    a.arm(Step.IN_DRAIN, How.MARK)
    b.start()
    a.wait_at(Step.IN_DRAIN)
    strike(run, a)
    run.finish_with(a)


def killed_in_replay(run: Run) -> None:
    """Kill the driver with a claim, and again during the replay."""
    a, _ = run.pair()
    a.hold_at(Step.AFTER_CLAIM)
    # The second time it may own partitions that another stream owned the first time.
    strike(run, a, bystanders=False)
    run.until_recovered()
    again = Step.IN_REPLAY if run.number % 2 == 1 else Step.IN_TASK
    a.arm(again)
    a.start()
    a.wait_at(again)
    a.kill(whole=True)
    a.start()
    run.finish()


def runner_killed(run: Run) -> None:
    """Kill only the runner, so that Spark fails the query."""
    a, _ = run.pair()
    run.fault(a)
    a.signal_runner(signal.SIGKILL)
    a.until_failed()
    run.finish_with(a)


def driver_killed(run: Run) -> None:
    """Kill JVM and Python of one of three streams, at any moment."""
    a, b, c = run.stream("A"), run.stream("B"), run.stream("C")
    run.begin(a, b, c)
    strike(run, a)
    run.finish_with(a)


def worker_killed(run: Run) -> None:
    """Kill an executor's Python worker that has read records; Spark retries the task."""
    a, _ = run.pair()
    worker = a.hold_at(Step.IN_TASK)
    run.fault(a)
    os.kill(worker, signal.SIGKILL)
    run.until_recovered()
    run.finish()


def runner_paused(run: Run) -> None:
    """Pause the runner at any point, for longer than its session, and resume it."""
    a, _ = run.pair(PAUSABLE)
    run.fault(a)
    a.signal_runner(signal.SIGSTOP)
    come_back(run, a)


def zombie(run: Run, step: Step) -> None:
    """Pause the runner right before it claims. It sends the claim when another stream owns the partitions."""
    a, _ = run.pair(PAUSABLE)
    a.hold_at(step, How.PAUSE)
    run.fault(a)
    come_back(run, a)
    if step is Step.IN_CLAIM_COMMIT:
        assert a.refusals(), "the zombie's claim was not refused"


def come_back(run: Run, paused: Stream) -> None:
    """Resume a paused runner when others own its partitions and its session has expired long ago."""
    since = time.time()
    run.until_recovered()
    away(since)
    paused.signal_runner(signal.SIGCONT)
    run.finish()


def fenced_with_a_commit(run: Run, *, deferred: bool) -> None:
    """Fence the member while a claim's commit is held up in the network, or is waiting for a coordinator."""
    a, _ = run.pair(proxied=True)
    a.hold_at(Step.IN_CLAIM_COMMIT)
    run.fault(a)
    for proxy in run.brokers.proxies.values():
        if deferred:
            proxy.refuse()
        else:
            proxy.hold(Direction.REQUESTS)
    a.release(Step.IN_CLAIM_COMMIT)
    since = time.time()
    run.until_recovered()
    away(since)
    for proxy in run.brokers.proxies.values():
        proxy.release()
    until(lambda: a.refusals() or not a.running, "the fenced member's claim is refused", PATIENCE_S)
    run.finish()
    assert a.refusals(), "the fenced member's claim was not refused"


def connection_cut(run: Run, *, both_ways: bool) -> None:
    """Let nothing through on A's connections to the coordinator. New connections replace them later."""
    a, _ = run.pair(proxied=True)
    proxy = run.brokers.proxies[run.brokers.coordinator(run.group).id]
    run.fault(a)
    one_way = Direction.REQUESTS if run.number % 2 == 1 else Direction.ANSWERS
    proxy.hold(*(Direction if both_ways else (one_way,)))
    away(time.time())
    proxy.drop()
    run.held()
    run.finish()


def revocation_lost(run: Run) -> None:
    """Lose the response that takes partitions from A when B joins. Until A notices, it keeps them, and B reads nothing."""
    a, b = run.stream("A", proxied=True), run.stream("B")
    run.begin(a)
    proxy = run.brokers.proxies[run.brokers.coordinator(run.group).id]
    lose_assignment(proxy, run.brokers.client(), run.topic, 2, run.protocol)
    run.fault(a, b)
    run.allow(NOTICED_S)
    b.start()
    until(lambda: proxy.forgot, "the answer is lost", PATIENCE_S)
    since = time.time()
    run.until_shared()
    assert time.time() - since <= NOTICED_S + FIRST_BATCH_S + ALLOWANCE_S, "it took longer than a minute"
    run.finish()


def gain_lost(run: Run) -> None:
    """Lose the response that gives C the partitions that A has drained. No stream reads them until C notices."""
    a, b = run.pair({"handoff.drainTimeout": f"{LONG_DRAIN_S:.0f}s"})
    c = run.stream("C", proxied=True)
    a.hold_at(Step.IN_TASK)
    a.arm(Step.IN_DRAIN, How.MARK)
    c.start()
    a.wait_at(Step.IN_DRAIN)
    until(lambda: c.owned, "C has its share of what B had", PATIENCE_S)
    proxy = run.brokers.proxies[run.brokers.coordinator(run.group).id]
    lose_assignment(proxy, run.brokers.client(), run.topic, 2, run.protocol)
    run.fault(a, b, c)
    run.allow(NOTICED_S)
    a.release(Step.IN_TASK)
    until(lambda: proxy.forgot, "the answer is lost", PATIENCE_S)
    run.finish()


def broker_restarted(run: Run) -> None:
    """Stop the coordinator's node in an orderly way, and restart it."""
    a, b = run.pair()
    node = run.brokers.coordinator(run.group)
    run.fault(a, b)
    node.stop()
    node.start()
    run.until_recovered()
    run.finish()


def broker_killed(run: Run) -> None:
    """Kill the coordinator's node, and restart it later. Until Kafka names another coordinator, no query can continue."""
    a, b = run.pair()
    node = run.brokers.coordinator(run.group)
    run.fault(a, b)
    node.kill()
    run.brokers.until_moved(run.group, node)
    run.held()
    run.until_recovered()
    node.start()
    run.finish()


def only_broker_killed(run: Run) -> None:
    """Kill a cluster of one node, and restart it."""
    a, b = run.pair()
    node = run.brokers.coordinator(run.group)
    run.fault(a, b)
    node.kill()
    node.start()
    run.held()
    run.finish()


def coordinator_moved(run: Run) -> None:
    """Move the group's coordinator twice among three running nodes."""
    a, b = run.pair()
    run.fault(a, b)
    for _ in range(2):
        run.brokers.move_coordinator(run.group, run.folder)
        run.until_durable_since(time.time())
    run.finish()


def partitions_added(run: Run) -> None:
    """Add partitions to the topic while a driver is dead with a claim."""
    a, _ = run.pair()
    a.hold_at(Step.AFTER_CLAIM)
    # With the classic protocol, the rebalance for new partitions and all commits wait until the killed member's session expires.
    strike(run, a, bystanders=run.protocol == "consumer")
    more = run.producer.partitions + 2
    client = run.brokers.client()
    client.create_partitions([NewPartitions(run.topic, more)])[run.topic].result()
    run.producer.partitions = more
    run.finish_with(a)


def standby_takes_over(run: Run) -> None:
    """Run more queries than there are partitions, and kill the one that has the only partition."""
    a, b = run.stream("A", PROMPT), run.stream("B", PROMPT)
    run.begin(a)
    b.start()
    run.until_members(2)
    assert not b.owned, "B owns the only partition"
    strike(run, a)
    run.allow(FIRST_BATCH_S)
    run.until_recovered()
    a.start()
    # A replays its owed ranges without a partition. The group learns of this when A owns one.
    run.until_members(2)
    run.finish(leaving=b)


def available_now_beside_a_peer(run: Run) -> None:
    """Run a query with Trigger.AvailableNow next to a live one: with a new checkpoint, and again from that checkpoint."""
    # A reads less than is produced. Otherwise it may have read all that B is to read before B has its share.
    a, b = run.stream("A", {**PROMPT, "maxOffsetsPerTrigger": "80"}), run.stream("B", PROMPT, trigger=AVAILABLE_NOW)
    run.begin(a)
    run.fault(a, b)
    # B reads nothing that came after its start, so its partitions stand still until it ends.
    run.allow(FIRST_BATCH_S)
    for _ in range(2):
        before = len(b.rows())
        b.start()
        b.until_finished()
        assert len(b.rows()) > before, "the run with Trigger.AvailableNow read nothing"
        run.until_durable_since(time.time())
    run.over()
    a.stop()
    a.change({"maxOffsetsPerTrigger": "1000000"})
    a.start()
    run.finish()


def scale_out_in_a_long_trigger(run: Run) -> None:
    """Start a query while another one has claims open for longer than the drain timeout."""
    options = {"handoff.drainTimeout": "2s"}
    a, b = run.stream("A", options, trigger=f"{LONG_TRIGGER_S:.0f} seconds"), run.stream("B", options)
    run.begin(a)
    a.arm(Step.AFTER_CLAIM, How.MARK)
    a.wait_at(Step.AFTER_CLAIM)
    run.fault(a, b)
    # If the runner cannot learn that the micro-batch has ended, B's share waits for A's next trigger, too.
    run.allow(LONG_TRIGGER_S if run.way in EARLY else 2 * LONG_TRIGGER_S)
    b.start()
    run.until_recovered()
    run.finish()
    assert not run.log.look("failed"), run.log.look("failed")


def topics_overlap_in_part(run: Run) -> None:
    """Kill a stream that subscribes to a second topic. After its restart, it owns only partitions of that topic."""
    second = f"{run.topic}-second"
    run.brokers.create_topic(second, 2)
    a, b = run.stream("A", {**PROMPT, "subscribe": f"{run.topic},{second}"}), run.stream("B", PROMPT)
    run.begin(a)
    a.hold_at(Step.AFTER_CLAIM)
    strike(run, a)
    b.start()
    b.until_it_has_a_runner()
    # Until here, no stream was reading, and B's first micro-batch is still to come.
    run.held()
    run.allow(FIRST_BATCH_S)
    run.finish_with(a)


def rolling_upgrade(run: Run) -> None:
    """Run this version next to the next one, whose records it cannot read, and kill the latter."""
    a, b = run.stream("A"), run.stream("B")
    b.upgrade()
    run.begin(a)
    b.start()
    run.until_shared()
    run.until_durable_since(time.time())
    b.hold_at(Step.AFTER_CLAIM)
    strike(run, b, bystanders=False)
    a.until_failed()
    assert "wrote it in format 5" in a.failure, a.failure
    b.start()
    a.upgrade()
    a.start()
    # No stream reads until both are restarted.
    run.until_recovered()
    run.held()
    run.finish()


CASES = {
    case.name: case
    for case in (
        Case("killed-before-offset-log", partial(killed_at, step=Step.BEFORE_OFFSET_LOG)),
        Case("killed-before-claim", partial(killed_at, step=Step.BEFORE_CLAIM)),
        Case("killed-after-claim", partial(killed_at, step=Step.AFTER_CLAIM)),
        Case("killed-in-task", partial(killed_at, step=Step.IN_TASK)),
        Case("killed-before-commit-log", partial(killed_at, step=Step.AFTER_SINK), sink="batch"),
        Case("killed-before-confirmation", killed_before_confirmation),
        Case("killed-before-closing", killed_before_closing, ways=EARLY),
        Case("killed-in-drain", killed_in_drain),
        Case("killed-in-replay", killed_in_replay, drivers=4),
        Case("runner-killed", runner_killed, drivers=2),
        Case("driver-killed", driver_killed, drivers=4),
        Case("worker-killed", worker_killed, drivers=2),
        Case("runner-paused", runner_paused, drivers=2),
        Case("zombie-claims", partial(zombie, step=Step.BEFORE_CLAIM), drivers=2),
        Case("zombie-commits-before-poll", partial(zombie, step=Step.IN_CLAIM_COMMIT), drivers=2),
        Case("partitions-added", partitions_added),
        Case("only-broker-killed", only_broker_killed, drivers=2),
        Case("standby-takes-over", standby_takes_over, partitions=1, idle_streams=True),
        Case("available-now-beside-a-peer", available_now_beside_a_peer, drivers=2, idle_streams=True),
        Case("scale-out-in-a-long-trigger", scale_out_in_a_long_trigger, drivers=2),
        Case("drain-beside-a-long-trigger", drain_beside_a_long_trigger, drivers=2, ways=EARLY),
        Case("stopped-between-triggers", stopped_between_triggers, drivers=1, ways=EARLY),
        Case("scaled-in", scaled_in, drivers=2, ways=EARLY),
        Case("topics-overlap-in-part", topics_overlap_in_part, partitions=1, idle_streams=True),
        Case("rolling-upgrade", rolling_upgrade),
        Case("fenced-commit-pending", partial(fenced_with_a_commit, deferred=False), nodes=3, drivers=2),
        Case("fenced-commit-deferred", partial(fenced_with_a_commit, deferred=True), nodes=3, drivers=2),
        Case("cut-one-way", partial(connection_cut, both_ways=False), nodes=3, drivers=2),
        Case("cut-both-ways", partial(connection_cut, both_ways=True), nodes=3, drivers=2),
        Case("revocation-lost", revocation_lost, nodes=3, drivers=2),
        Case("gain-lost", gain_lost, nodes=3, partitions=6),
        Case("broker-restarted", broker_restarted, nodes=3, drivers=2),
        Case("broker-killed", broker_killed, nodes=3, drivers=2),
        Case("coordinator-moved", coordinator_moved, nodes=3, drivers=2),
    )
}
