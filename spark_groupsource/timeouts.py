"""How long somebody waits, and the times that several modules share: each in seconds, with its reason.

A time that one module uses stands in that module. What a user may choose is an option (options/model.py). Which error means what
is in brokers/broker_errors.py.
"""

from __future__ import annotations

# Requests: how long a broker may take.

REQUEST_TIMEOUT_S = 10.0
"""One request to a broker. librdkafka asks another broker when it is over."""

FIRST_TIMEOUTS_S = (3.0, 3.0)
"""Time limits of the first attempts to describe topics. After each of them another broker is asked."""

IDLE_S = 10.0
"""After this time without an answer, silence may mean that the network has forgotten the connection. A client's first request
then is repeated on a new connection, or a new client is made for it."""

FETCH_TIMEOUT_S = 30.0
"""Time limit of one request for the group's commits, which have the records of the hand-off."""

GROUP_OFFSETS_S = 60.0
"""How long a task of the sink, and its driver, try to read or commit a token, or to list the groups. Coordinators move within
seconds."""

LIST_AGAIN_S = 1.0
"""Before the groups are listed again: a broker did not answer, was still loading, or is away and its groups are on their way."""

TRANSACTION_S = 120.0
"""How long a task of the sink tries one step of a transaction. Coordinators move within seconds."""

INIT_TRY_S = 5.0
"""How long a task of the sink waits for its transactional id before it looks whether the brokers have refused the login."""

ABORT_S = 10.0
"""How long a task of the sink, or its driver, tries to end a transaction that failed. Otherwise the task's next try ends it."""

CONNECT_S = 5.0
"""How long a task of the sink waits for its first connection before it asks for the transaction's coordinator all the same."""

ADDRESSES_TRIED_AFTER_S = 15.0
"""After how long without an answer a task with a new client tries the addresses that the brokers advertise. Brokers
that restart behind a bootstrap service that answers should not end a task."""

# Trying again.

RETRY_INTERVAL_S = 0.1
"""Between two attempts, unless the caller gives another interval."""

CUT_BELIEVED_AFTER_S = 12.0
"""How long a log has to end below what should be in it before the driver or a task believes that records were cut off.

A leader that was replaced answers for up to a broker's session (`broker.session.timeout.ms`, 9 s by default), because it does
not know that. A new leader may return an end that is too low until its followers have fetched from it.
"""


def cut_believed_after_s(poll_timeout_ms: int) -> float:
    """Return `CUT_BELIEVED_AFTER_S`, but no longer than a task waits for records."""
    return min(CUT_BELIEVED_AFTER_S, poll_timeout_ms / 1000)


# Membership and the hand-off.

JOIN_INTERVAL_S = 0.005
"""Between two polls of a member until its first assignment, and how often the query looks for it: a query that starts waits."""

LEAVE_S = 10.0
"""How long a member that is closed may take to leave its group. The process ends afterwards, and its session runs out."""

# Learning that Spark has finished a micro-batch.

AT_STOP_S = 5.0
"""How long a run that is stopped waits for the report of its last plan. Spark posts it after it has stopped the runner, and
a busy driver may take seconds for it. A run whose checkpoint can be read does not wait."""

# The command line.

CHECK_STEP_S = 10.0
"""One step of `groupkafka check`. Somebody waits for it."""

# The driver's program.

ANSWER_OF_A_PYTHON_S = 10.0
"""How long `register` waits for another Python to say what it has installed. It takes 50 ms, and then `register` goes on."""
