"""The rules of the hand-off: who reads a range, whatever dies when. Without a client, a thread or a clock.

The life of a partition, as one stream sees it:

    acquired    `on_assign`: the group assigns the partition. The stream reads the partition's commit record, and writes it at
                once in its own name (`rules.adopt`). The record says where to read on, and what is owed to other streams.
    planned     `latestOffset` puts a range into a plan. Nothing is claimed: Spark may discard the plan.
    claimed     `partitions`: the plan is in Spark's offset log. One commit claims its ranges, which are now open (`rules.claim`).
    confirmed   The plan is in Spark's commit log. The next commit closes the claim (`rules.confirm`).
    draining    `on_revoke`: the group asks the partition back. New plans leave it out. The callback waits until nothing is in
                flight, the drain timeout is over, or the member closes.
    released    The callback returns, and the group may assign the partition to another member. What is still open stays in
                the record.
    lost        `on_lost`: the group has expelled the member. Another member may have the partition already.

A range that is still open when another stream adopts the partition is owed to the stream that claimed it:

    owed        The owner of the partition keeps the range in the record. The other stream reads it when it restarts.
    settled     That stream has confirmed the range, and the owner drops it (`rules.settle`).
    reread      Or the owner puts the range into a plan of its own (`outstandingClaims`, `owed_ranges`).

The callbacks are in group/member.py. group/ledger.py carries out the rules, group/fenced_commits.py writes the records, and
query/cycle.py plans, claims and confirms. docs/handoff.md explains why each rule is as it is.
"""
