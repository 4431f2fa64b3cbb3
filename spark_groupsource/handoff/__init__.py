"""Implements the rules of the hand-off: which query reads a range of offsets, no matter what fails, or when.

The rules are pure: they use no clients, threads or clocks. A stream is one checkpoint of one query, through all of the query's
restarts. A plan is one of the stream's micro-batches. For each partition the group stores one commit record, which only a member
of the current generation can write. A stream bases its decisions only on that record and its own checkpoint.

The life of a partition, as one stream sees it:

    acquired    `on_assign`: the group assigns the partition. The stream reads the partition's commit record, and asks the
                brokers about the partition. Once they have answered, it writes the record in its own name (`rules.adopt`),
                unless it has lost the partition in the meantime. It continues at the record's position. Ranges that the
                previous owner claimed but did not confirm are now owed to that owner's stream.
    planned     `latestOffset` plans the offsets from the position to the end of the log, within the limits (`planner.plan`).
                Nothing is claimed, because Spark may discard the plan.
    logged      Spark writes the plan to its offset log (`plan_offset`).
    claimed     `partitions`: one commit moves the position past the plan's ranges, and records them as open (`rules.claim`).
                Only the run that made the plan, and has owned the partition ever since, may claim. Any other attempt reads
                only what is already open or owed for its plan.
    durable     The tasks have read the ranges, the sink has committed, and Spark writes the plan to its commit log.
    confirmed   A commit closes the claim (`rules.confirm`) as soon as the runner learns that the plan is durable, or with the
                next trigger at the latest. The committed offset rises.
    draining    `on_revoke`: the group revokes the partition. New plans leave it out. The callback waits until no range is in
                flight, the drain timeout is over, or the member closes.
    released    The callback returns, and the group may assign the partition to another member. Ranges that are still open stay
                in the record.
    lost        `on_lost`: the group has expelled the member. Another member may already have the partition. Open ranges stay in
                the record, just as when the process dies.

A range that is still open when another stream adopts the partition is owed to the stream that claimed it:

    owed        The owner of the partition keeps the range in the record. The other stream reads it when it restarts and replays
                its plan.
    settled     Some record in the group shows that this plan is done (`rules.evidence`), so the owner drops the range
                (`rules.settle`).
    reread      Alternatively, the owner puts the range into one of its own plans (`heldClaims`). The claim moves it from
                owed to open in one commit, so exactly one stream is responsible for it at any moment.

Records can also disappear from Kafka before they are read. `losses` detects that, and decides where the partition continues.

The callbacks are in group/member.py. group/ledger.py carries out the rules, group/fenced_commits.py writes the records, and
query/cycle.py plans, claims and confirms. docs/design.md explains the reason for each rule. tests/simulation drives
these functions through histories of crashes.
"""
