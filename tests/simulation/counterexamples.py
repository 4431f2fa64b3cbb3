"""Histories that broke an earlier version of the rules, and those that a random search is too unlikely to find."""

from __future__ import annotations

from tests.simulation.history import prompt

TWO_DRIVERS = prompt("""
    append 0
    takes A.1 0
    plans A.1 None
    begins B.1
    move 0 B.1#1
    passes A.1 B.1
    write A.1
    second A
    claim A.2
    ends A.2
    move 0 A.1#1
    passes B.1 A.1
    acknowledge A.1
    claim A.1
""")
"""A's first driver makes plan 0. Its second driver runs the plan while B has the partition, and leaves the range to B. B reads
nothing of it, and gives the partition back to A's first driver. If that driver may still claim the range for plan 0, the sink
ignores it, since the sink has plan 0."""

OWING_ITSELF = prompt("""
    append 0
    append 0
    takes A.1 0
    runs A.1 1
    second A
    join A.2
    sync A.1
    plans A.1 1
    claims A.1
    begins B.1
    yields A.1 B.1 0
    crash A.1
    yields B.1 A.2 0
""")
"""A's second driver, which knows plan 0 only, gets a partition whose record owes a range to plan 1 of A. If it takes the
partition all the same, it waits for itself: its own commit log never shows plan 1."""

OWED_TO_ONESELF = prompt("""
    append 0
    takes A.1 0
    plans A.1 None
    claims A.1
    begins B.1
    yields A.1 B.1 0
    move 0 A.1#1
    sync B.1
    passes B.1 A.1
    ends A.1
""")
"""A's range goes to B with the partition and comes back with it, before A's plan is durable. Nothing new comes after that. So
only A's own commit log shows that the range is no longer owed."""

RESTORED_CHECKPOINT = prompt("""
    append 0
    takes A.1 0
    runs A.1 None
    append 0
    plans A.1 None
    begins B.1
    sync A.1
    move 0 B.1#1
    sync A.1
    passes A.1 B.1
    claims A.1
    move 0 A.1#1
    sync B.1
    passes B.1 A.1
    ends A.1
    dies A.1
    restore A
    takes A.2 0
    runs A.2 None
""")
"""Plan 1 of A is durable, and only the record that A wrote when it got the partition back shows it. Somebody restores A's
checkpoint from a copy that ends with plan 0: a new plan 1 would be ignored by the sink."""

LOST_COMMIT = prompt("""
    append 0
    takes A.1 0
    runs A.1 None
    plans A.1 None
    stop A.1
    lose commit A
    takes A.2 0
    claim A.2
    ends A.2
""")
"""Plan 0 of A is durable, and A's record says so. Somebody restores A's checkpoint from a copy that has the plan in its offset
log and not in its commit log. The claims are closed, so a replay would read nothing of what the restored output lacks."""

LOST_COMMIT_OF_AN_EARLIER_OWNER = prompt("""
    append 0
    takes A.1 0
    runs A.1 None
    plans A.1 None
    stop A.1
    lose commit A
    takes B.1 0
    start A
    claim A.2
    ends A.2
""")
"""The same, and B adopts the partition before A starts again. Only what B remembers of A shows that plan 0 is done."""

LATE_CONFIRMATION = prompt("""
    append 0
    append 0
    takes B.1 0
    runs B.1 1
    plans B.1 None
    write B.1
    acknowledge B.1
    begins A.1
    move 0 A.1#1
    sync B.1
    cut B.1 late
    revoke B.1
    claim B.1
    ends B.1
    durable B.1
    arrive 0
""")
"""B closes plan 0 while it gives the partition back, and gets no answer. If it went on to claim plan 1, the late request would
take the claim back."""

LATE_CLOSE = prompt("""
    append 0
    append 0
    takes A.1 0
    runs A.1 1
    report A.1 0
    cut A.1 late
    close A.1
    plans A.1 None
    claims A.1
    arrive 0
    ends A.1
    dies A.1
""")
"""A closes plan 0 because it is reported as durable, and gets no answer. If it went on to claim plan 1, the late request would
take the claim back. A then dies, and its next driver would read on at the position before that claim."""

CAME_BACK = prompt("""
    append 0
    takes A.1 0
    plans A.1 None
    claims A.1
    begins B.1
    yields A.1 B.1 0
    append 0
    runs B.1 None
    durable B.1
    move 0 A.1#1
    sync B.1
    revoke B.1
    release B.1
    assign A.1
    on_assign A.1
    ends A.1
    report A.1 0
    close A.1
""")
"""A's range goes to B with the partition and comes back with it, and meanwhile B has read on. Then A's plan is reported as
durable. What A closes is the record that it has adopted, not the one that it claimed with: that one's position is B's by now.
Nothing of it is open, and the range that is owed to A itself is settled."""

DRAINING_FOR_EACH_OTHER = prompt("""
    append 0
    append 1
    append 2
    append 3
    begins A.1
    begins B.1
    move 0 A.1#1
    move 1 A.1#1
    move 2 B.1#1
    move 3 B.1#1
    assign A.1
    assign B.1
    on_assign A.1
    on_assign B.1
    plans A.1 None
    plans B.1 None
    move 1 B.1#1
    revoke A.1
    let go A.1
    move 3 A.1#1
    revoke B.1
    let go B.1
    assign A.1
    assign B.1
    move 0 B.1#1
    revoke A.1
    move 2 A.1#1
    revoke B.1
    write A.1
    acknowledge A.1
    write B.1
    acknowledge B.1
""")
"""A and B have planned two partitions each, and each releases one of them to the other past the drain timeout. Before it can
adopt what it gets, each is asked for the partition that it kept, and drains it. Each claim now waits for the other's adoption,
which waits for the end of that one's drain."""

OWED_BY_THE_NEXT_VERSION = prompt("""
    append 0
    upgrade B
    takes A.1 0
    plans A.1 None
    claims A.1
    dies A.1
    takes B.1 0
    start A
    claim A.2
    ends A.2
""")
"""A dies with a claim, and B, which runs the next version, adopts the partition. B's record owes the range to A, whose version
cannot read it. If A took it for another client's commit, it would leave its own range."""

PARTLY_ACCEPTED = prompt("""
    append 0
    append 1
    begins A.1
    move 0 A.1#1
    move 1 A.1#1
    assign A.1
    sync A.1
    on_assign A.1
    begins B.1
    move 1 B.1#1
    revoke A.1
    release A.1
    sync A.1
    gets A.1 1
    runs A.1 None
    dies A.1
    start A
""")
"""A gives partition 1 back, and gets it again before B has adopted it. Its record is as A left it, so A writes none. A plans both
partitions in the epoch of before. The coordinator accepts the claim in partition 0, and refuses that in partition 1. If both
count as accepted, partition 1 is read twice. If both are forgotten, partition 0 is lost: its record says that A's plan has it."""

HEARS = "look B.1\nidle B.1\n"

LIVED_BETWEEN_TWO_PLANS = prompt(
    f"""
    append 0
    append 1
    takes A.1 0
    gets A.1 1
    plans A.1 None
    claims A.1
    dies A.1
    takes B.1 0
    gets B.1 1
    {2 * HEARS}
    plans B.1 None
    confirm B.1
    name B.1
    rest B.1
    begins A.2
    yields B.1 A.2 1
    idle B.1
    {10 * HEARS}
    dies A.2
    move 1 B.1#1
    sync B.1
    assign B.1
    on_assign B.1
    {2 * HEARS}
    plans B.1 None
    """.replace("\n\n", "\n")
)
"""B holds ranges for A, which is dead at a plan of B. A comes back and has a partition again for a long time, and dies shortly
before B's next plan. If the answers in between do not count, A was dead all the time, and its ranges are read at once."""

DIED_BETWEEN_TWO_PLANS = prompt(
    f"""
    append 0
    append 1
    takes A.1 0
    gets A.1 1
    plans A.1 None
    claims A.1
    begins B.1
    move 1 B.1#1
    revoke A.1
    let go A.1
    sync B.1
    assign B.1
    on_assign B.1
    {2 * HEARS}
    plans B.1 None
    confirm B.1
    name B.1
    rest B.1
    dies A.1
    move 0 B.1#1
    sync B.1
    assign B.1
    on_assign B.1
    {30 * HEARS}
    plans B.1 None
    """.replace("\n\n", "\n")
)
"""A is alive at a plan of B, and dies soon after. B's next plan is much later: it reads A's ranges at once. If A is dead only
since that plan, they wait for the one after it."""
