"""Every time that decides how long something takes, or how often it is tried: its value in seconds, and its reason.

What a user may choose is an option (options/model.py). Which error means what is in brokers/broker_errors.py.
"""

from __future__ import annotations

# Requests: how long a broker may take.

REQUEST_TIMEOUT_S = 10.0
"""One request to a broker. librdkafka asks another broker when it is over."""

LIST_GROUPS_S = 3.0
"""How long all brokers together may take to list their groups, once the coordinator has answered that there is none of a name."""

FIRST_TIMEOUTS_S = (3.0, 3.0)
"""Time limits of the first attempts to describe topics. After each of them another broker is asked."""

ENDS_TIMEOUT_S = 3.0
"""Time limit for end offsets when all leaders answered last time. While one leader is down the other partitions go on."""

EARLY_TIMEOUT_S = 10.0
"""The time limit of a new AdminClient's own first request. Nobody waits for its answer."""

ASK_LEADER_AGAIN_S = 1.0
"""Between two questions to a leader that was silent at this trigger and at the last one, long ago."""

ANSWER_LIMIT_S = 40.0
"""The time limit of one question, with all its attempts. The requests have limits of their own, which are shorter."""

FETCH_TIMEOUT_S = 30.0
"""Time limit of one request for the group's commits, which have the records of the hand-off."""

TOKEN_RETRY_S = 10.0
"""Seconds after a failure until librdkafka asks for a token again, if the last one has expired."""

GROUP_OFFSETS_S = 60.0
"""How long a task of the sink, and its driver, try to read or commit a token, or to list the groups. Coordinators move within
seconds."""

GROUP_OFFSETS_TRY_S = 5.0
"""How long one such request may take. Between two of them a refusal is noticed."""

LIST_AGAIN_S = 1.0
"""Before the groups are listed again, since a broker did not answer or was still loading. Each try has connections of its own."""

MARK_AGAIN_S = 600.0
"""How long a process relies on the mark of a task's transactions that it has left. Marks expire, as tokens do."""

STABLE_OFFSETS_S = 60.0
"""For how long an open transaction of a group's offsets is waited for. Its producer has been fenced, so its end is near."""

STABLE_INTERVAL_S = 0.02
"""How often that is asked."""

TOPIC_APPEARS_S = 3.0
"""How long the driver asks again for a topic that no broker knows. One that was created just now is known to all soon."""

TOPIC_TRY_S = 5.0
"""How long the driver waits for the answer. Then the tasks ask, and say why no broker answers."""

TOPIC_KNOWN_S = 30.0
"""How long the driver relies on that answer. A topic is not deleted often, and each micro-batch would pay for the question."""

TRANSACTION_S = 120.0
"""How long a task of the sink tries one step of a transaction. Coordinators move within seconds."""

INIT_TRY_S = 5.0
"""How long a task of the sink waits for its transactional id before it looks whether the brokers have refused the login."""

ABORT_S = 10.0
"""The same for the end of a transaction that failed: the next try of the task ends it otherwise."""

CONNECT_S = 5.0
"""How long a task of the sink waits for its first connection before it asks for the transaction's coordinator all the same."""

PARTITIONS_KNOWN_S = 30.0
"""How long a task of the sink writes its rows again since a broker does not know a partition that another one has named. Brokers
learn of added partitions within seconds; one that is cut off is replaced after its session (9 s)."""

PARTITIONS_KNOWN_INTERVAL_S = 0.5
"""Between two of these tries."""

TOPIC_LIMIT_S = 3.0
"""How long a task of the sink waits for the largest batch that its topics take. Without an answer its batches are small."""

TOPIC_LIMIT_KEPT_S = 300.0
"""How long a process believes this answer. A task that fails ends its process, so the next try asks anew."""

FULL_QUEUE_S = 1.0
"""How long a task fills the producer's queue in one call, without looking for Python's signals."""

FULL_QUEUE_POLL_S = 0.005
"""How long a producer is polled before the next try: the pure Python one while its queue is full, the native one while it keeps
much."""

FLUSH_S = (0.001, 0.1)
"""How long a task waits for deliveries in its first call, and in a later one. In between it looks for rows that were refused.
To the pure Python producer only failures are reported: then librdkafka looks every 10 ms whether all are there, and when a call
ends."""

# Trying again.

RETRY_INTERVAL_S = 0.1
"""Between two attempts, unless the caller gives another interval."""

CUT_BELIEVED_AFTER_S = 12.0
"""How long a log has to end below what should be in it before the driver or a task believes that records were cut off.

A leader that was replaced answers for up to a broker's session (`broker.session.timeout.ms`, 9 s by default), because it does
not know that. A new leader may return an end that is too low until its followers have fetched from it.
"""

CLOSE_AGAIN_AFTER_S = 1.0
"""Seconds between two attempts to close the claims of a plan that is reported as durable."""

TROUBLE_INTERVAL_S = 30.0
"""How often the same error of the brokers is logged while it lasts."""

LAST_ERROR_KEPT_S = 180.0
"""For how long an error that a client reported in the background explains requests that nobody answers. A lasting one is reported
again, after half a minute or more; an older one may be of a broker that was restarting."""

PORT_PATIENCE_S = 30.0
"""How long to wait for a port: Spark restarts a query while the process of its previous run is still leaving the group. That may
take REQUEST_TIMEOUT_S until it hears the signal, AT_STOP_S and LEAVE_S."""

# Membership and the hand-off.

POLL_INTERVAL_S = 0.05
"""Longest time between two polls when no command comes. Commands are served at once."""

JOIN_INTERVAL_S = 0.005
"""The same until the first assignment, and how often the query looks for it: a query that starts waits for it."""

MEMBER_LIVES_EVERY_S = 0.5
"""How often a caller that waits for the consumer's thread asks whether that still lives."""

LEAVE_S = 10.0
"""How long a member that is closed may take to leave its group. The process ends afterwards, and its session runs out."""

CALLBACK_AFTER_S = 2.0
"""KIP-848: how long after its epoch is known a new member waits for the callback with its partitions."""

DISAGREES_S = 20.0
"""How long the coordinator and a member may disagree about its partitions. Its next heartbeat should end that, and brokers want
one at least every 15 s (`group.consumer.max.heartbeat.interval.ms`)."""

BLOCKED_AFTER_S = 2.0
"""How long a claim may wait for another member to adopt a partition before this member stops draining others."""

ADOPTED_WITHIN_S = 60.0
"""How long the record of a member that has left the group still shows its stream as alive. A query that was restarted writes its
records anew within that time."""

# Looking: how often something is asked that nobody reports.

COMPARE_EVERY_S = 30.0
"""How often the coordinator is asked what it has assigned to this member. With `DISAGREES_S` that is less than a minute."""

COMPARE_AGAIN_S = 5.0
"""The same while the two disagree, and the wait after a request that timed out: librdkafka first connects again."""

WATCH_STEP_S = 0.5
"""How often the thread that asks looks whether the member has left, or a request has timed out."""

SETTLE_INTERVAL_S = 2.0
"""How often a plan of a member that holds ranges for other streams checks whether those streams have confirmed them."""

SETTLE_BETWEEN_TRIGGERS_S = 10.0
"""The same between two triggers: the next one may be an hour away."""

LOOK_FOR_DELETED_EVERY_S = 1.0
"""How often it is checked whether the topic of a partition that was deleted is there again."""

LOOK_ELSEWHERE_EVERY_S = 30.0
"""How often the partitions of other topics are asked for. The request names every partition of the cluster, and what is owed to
a query that was stopped may stay owed for days."""

LOOK_AT_DRIVER_EVERY_S = 0.5
"""Seconds between two looks at whether the driver is alive."""

# Learning that Spark has finished a micro-batch.

DRIVER_REPORTS_KEPT_S = 7 * 24 * 3600.0
"""How long a file of reports stays that nobody has replaced. A stream that reports again makes a new one."""

AT_STOP_S = 5.0
"""How long a run that is stopped waits for the report of its last plan. Spark posts it after it has stopped the runner, and
a busy driver may take seconds for it. A run whose checkpoint can be read does not wait."""

# Tasks.

TASK_WAIT_S = 0.5
"""The longest single wait in librdkafka, which no signal interrupts."""

TASK_FLOW_S = 0.005
"""The wait for the next record, while records flow."""

TASK_ASK_S = 1.0
"""The limit of a request for the log's bounds while the task waits for records."""

TASK_SILENCE_S = 5.0
"""After so long without a record, the task asks for the log's bounds: librdkafka reports a deleted topic late or never."""

TASK_EARLY_END_S = 0.25
"""The same at the end of the partition, if the range should not end there."""

TASK_SHARED_SILENCE_S = 2.0
"""After so long without a record, a task that reads several partitions at a time goes on with one at a time, which finds out what
is wrong. Leaders answer within ms; a new connection may wait for `reconnect.backoff.ms`, which is 1 s by default."""

TASK_FIRST_PAUSE_S = 0.1
"""The pause before another assignment, after an error that the log's bounds do not explain. It doubles each time."""

TASK_LONGEST_PAUSE_S = 5.0
"""The longest of these pauses."""

BOUNDS_FIRST_WAIT_S = 1.0
"""The timeout of the first request for a log's bounds. One that times out is sent again with twice the time, for a broker that
is slow."""

BOUNDS_SHORTEST_WAIT_S = 0.05
"""The shortest such timeout, when the task's own time is nearly over."""

BOUNDS_BETWEEN_TRIES_S = 0.25
"""The pause between two of these requests."""

# Metrics and the command line.

SCRAPE_SILENCE_S = 30
"""How long a client of the metrics' port may send or read nothing. A scrape takes ms."""

CHECK_STEP_S = 10.0
"""One step of `groupkafka check`. Somebody waits for it."""
