"""Defines time limits and intervals, in seconds, that several modules share or that users notice, with their reasons.

A time that only one module uses is defined in that module. Times that users can set are options (options/model.py).
brokers/broker_errors.py defines what errors mean.
"""

from __future__ import annotations

# Time limits for requests, and pauses between them.

REQUEST_TIMEOUT_S = 10.0
"""The time limit for one request to a broker. After that, librdkafka asks another broker."""

SHORT_TIMEOUT_S = 3.0
"""The time limit for a request that is not worth a longer wait: the caller asks another broker, or asks again later."""

ASK_AGAIN_S = 1.0
"""The pause before asking a broker again, if it did not answer, was still loading its groups, or did not have a partition yet."""

TRY_S = 5.0
"""How long one attempt may take before the caller checks whether the brokers have refused the login, which librdkafka reports
only between two requests."""

IDLE_S = 10.0
"""How long a client may be idle before its connections are in doubt. After a longer pause, a missing answer may mean that the
network has dropped the connection, so the first request is repeated on a new connection or sent by a new client."""

KEPT_S = 30.0
"""How long a client may be idle and still be reused. Networks may drop idle connections without notifying librdkafka, and a
request on such a connection waits for seconds. After a longer pause, a new client costs little in comparison."""

FETCH_TIMEOUT_S = 30.0
"""The time limit for one request for the group's commits, which contain the hand-off's records."""

GROUP_OFFSETS_S = 60.0
"""How long the sink's tasks and driver try to read or commit a token, or to list groups, and how long a reader of a group's
offsets waits for an open transaction that contains such offsets. A coordinator moves within seconds, and a fenced producer's
transaction is aborted within seconds."""

TRANSACTION_S = 120.0
"""How long a sink task tries one step of a transaction. A coordinator moves within seconds."""

ABORT_S = 10.0
"""How long the sink's tasks and driver try to abort a failed transaction. After that, the next task attempt aborts it."""

CONNECT_S = 5.0
"""How long a sink task waits for its first connection before it looks up the transaction coordinator anyway."""

ADDRESSES_TRIED_AFTER_S = 15.0
"""How long a task with a new client waits for an answer before it tries the addresses that the brokers advertise. A task should
not fail because the brokers are restarting while a bootstrap service still answers."""

FULL_QUEUE_POLL_S = 0.005
"""How long a full producer is polled before the next attempt. The pure Python producer is full when its queue is full, and the
native one when it holds too many bytes."""

FLUSH_S = (0.001, 0.1)
"""How long the first and the longest `flush` call wait for deliveries. Between calls, the task checks for refused rows.

Short first calls help the pure Python producer. It receives only failure reports, so librdkafka checks whether all rows have been
delivered only every 10 ms and at the end of a call."""

# Repeated attempts.

RETRY_INTERVAL_S = 0.1
"""The default pause between two attempts."""

RETRY_LATER_S = 1.0
"""The pause between two attempts of a step that can succeed only once another process, member or coordinator has acted."""

ASK_FOR_IDS_EVERY_S = 1.0
"""How often to check whether a deleted topic has been recreated and, while there is nothing to plan, whether any topic has."""

ASK_GROUP_EVERY_S = 30.0
"""How often to ask the group for commits of partitions that the query does not own: those that its stream has not owned yet, and,
while ranges are held, those of all other topics. Such a request may name every partition in the cluster."""

CUT_BELIEVED_AFTER_S = 12.0
"""How long a log must appear too short before the driver and tasks treat it as truncated.

A replaced leader keeps answering until it learns of the change, for up to a broker's session (`broker.session.timeout.ms`, 9 s
by default). A new leader may return an end that is too low until its followers have fetched from it.
"""


def cut_believed_after_s(poll_timeout_ms: int) -> float:
    """Return `CUT_BELIEVED_AFTER_S`, or the time that a task waits for records if that is shorter."""
    return min(CUT_BELIEVED_AFTER_S, poll_timeout_ms / 1000)


# Group membership, and the end of a run.

JOIN_INTERVAL_S = 0.005
"""How often a member polls, and a starting query checks for an assignment, until the first one arrives."""

AT_START_S = 5.0
"""How long a starting run waits for each of these: the group's commits (a signal to stop the query is handled only after that),
leaders that do not answer and may be down, and the first read of the checkpoint, which may be another stream's."""

READ_REPORT_EVERY_S = 0.2
"""How often to read the files in which the driver's program reports finished micro-batches and asks the query to stop."""

LEAVE_S = 10.0
"""How long a closing member may take to leave its group. After that, the process exits and the member's session expires."""

AT_STOP_S = 5.0
"""How long a stopped run waits for the report of its last plan. Spark posts the report after it has stopped the runner, which
may take seconds on a busy driver. A run that can read its checkpoint does not wait."""

# Times that a user waits, at the command line or in the driver's program.

CHECK_STEP_S = 10.0
"""The time limit for one step of `groupkafka check`."""

ANSWER_OF_A_PYTHON_S = 10.0
"""How long `register` waits for another Python to report its packages, which usually takes 50 ms, before it continues anyway."""
