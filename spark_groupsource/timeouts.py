"""Defines time limits and intervals that several modules share or users notice, in seconds, with their reasons.

A time that only one module uses is defined in that module. Times that a user may choose are options (options/model.py). The
meaning of errors is in brokers/broker_errors.py.
"""

from __future__ import annotations

# Time limits of requests, and pauses between them.

REQUEST_TIMEOUT_S = 10.0
"""The time limit of one request to a broker. After it, librdkafka asks another broker."""

FIRST_TIMEOUTS_S = (3.0, 3.0)
"""The time limits of the first attempts to describe topics. After each of them another broker is asked."""

IDLE_S = 10.0
"""How long a client may be idle. After a longer pause, a missing answer may mean that the network has forgotten the connection,
so the first request is repeated on a new connection, or sent by a new client."""

FETCH_TIMEOUT_S = 30.0
"""The time limit of one request for the group's commits, which contain the records of the hand-off."""

GROUP_OFFSETS_S = 60.0
"""How long a task of the sink, or its driver, tries to read or commit a token, or to list the groups. A coordinator moves within
seconds."""

LIST_AGAIN_S = 1.0
"""The pause before the groups are listed again if a broker did not answer, was still loading, or is down while its groups
move."""

TRANSACTION_S = 120.0
"""How long a task of the sink tries one step of a transaction. A coordinator moves within seconds."""

INIT_TRY_S = 5.0
"""How long a task of the sink waits for its transactional id before it checks whether the brokers have refused the login."""

ABORT_S = 10.0
"""How long a task of the sink, or its driver, tries to end a failed transaction. After that, the next task attempt ends it."""

CONNECT_S = 5.0
"""How long a task of the sink waits for its first connection before it asks for the transaction's coordinator anyway."""

ADDRESSES_TRIED_AFTER_S = 15.0
"""How long a task with a new client waits for an answer before it tries the addresses that the brokers advertise. A task should
not end because the brokers are restarting while a bootstrap service still answers."""

# Attempts that are repeated.

RETRY_INTERVAL_S = 0.1
"""The pause between two attempts, unless the caller gives another one."""

CUT_BELIEVED_AFTER_S = 12.0
"""How long a log has to end below the records that should be in it before they count as cut off, in the driver and in tasks.

A leader that was replaced keeps answering for up to a broker's session (`broker.session.timeout.ms`, 9 s by default), because it
does not know yet that it was replaced. A new leader may return an end that is too low until its followers have fetched from it.
"""


def cut_believed_after_s(poll_timeout_ms: int) -> float:
    """Return `CUT_BELIEVED_AFTER_S`, but no longer than a task waits for records."""
    return min(CUT_BELIEVED_AFTER_S, poll_timeout_ms / 1000)


# Membership of the group, and the end of a run.

JOIN_INTERVAL_S = 0.005
"""The pause between two polls of a member until its first assignment, and how often a starting query checks for it."""

LEAVE_S = 10.0
"""How long a member that is closed may take to leave its group. If it takes longer, the process ends, and its session expires."""

AT_STOP_S = 5.0
"""How long a stopped run waits for the report of its last plan. Spark posts the report after it has stopped the runner, and a
busy driver may take seconds for it. A run that can read its checkpoint does not wait."""

# Waits of a user: at the command line, and in the driver's program.

CHECK_STEP_S = 10.0
"""The time limit of one step of `groupkafka check`."""

ANSWER_OF_A_PYTHON_S = 10.0
"""How long `register` waits for another Python to report its packages, which usually takes 50 ms. Then it continues without."""
