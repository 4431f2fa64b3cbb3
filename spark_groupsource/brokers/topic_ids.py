"""Which topic a name stands for now. A changed answer counts only once a broker has given it several times.

A topic that was deleted and created again is another topic; its id shows that. A broker may lag behind the others for a
moment, so one answer is not enough to give up a topic.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from itertools import islice

from spark_groupsource.handoff.losses import changed
from spark_groupsource.timeouts import RETRY_INTERVAL_S

BELIEVE_AFTER = 5
"""How many times a broker has to repeat that a topic does not exist, or has another id."""


BELIEVED_AT_MOST = 1000
"""How many changes of other topics are remembered: a query on a pattern may see new topics for months."""


class TopicIds:
    """The ids of topics as the brokers know them now.

    The runner's main thread and the threads of a survey ask. What they share is one frozenset, which is replaced and never
    edited. If two replace it at once, one change is lost, and the next question repeats what it costs to believe it.
    """

    def __init__(
        self, ask: Callable[[Iterable[str]], Mapping[str, str | None]], *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """Begin without a changed id.

        Args:
            ask: returns the ids of these topics, as `topics.Topics.ids` does.
            sleep: waits for so many seconds.
        """
        self._ask = ask
        self._sleep = sleep
        self._believed: frozenset[tuple[str, str | None]] = frozenset()

    def now(self, expected: Mapping[str, str | None]) -> Mapping[str, str | None]:
        """Return each topic's id: `None` for a topic that does not exist, "" from brokers without topic ids.

        A topic that no broker answers for is left out.

        Args:
            expected: the topics, each with the id that it had; `None` where that is not known.

        Raises:
            NotAuthorized, AuthenticationFailed: at once.
        """
        ids = self._ask(expected)
        # What is not true any more has to be said as often again, should it come back.
        self._believed = frozenset(known for known in self._believed if ids.get(known[0], known[1]) == known[1])
        for _ in range(BELIEVE_AFTER):
            if _changes(expected, ids) <= self._believed:
                return ids
            self._sleep(RETRY_INTERVAL_S)
            ids = self._ask(expected)
        changes = _changes(expected, ids)
        of_others = (known for known in self._believed if known[0] not in expected)
        self._believed = frozenset([*changes, *islice(of_others, BELIEVED_AT_MOST)])
        return ids


def _changes(expected: Mapping[str, str | None], ids: Mapping[str, str | None]) -> frozenset[tuple[str, str | None]]:
    """Return the topics that do not exist, or do not have the expected id, each with what it has instead."""
    return frozenset((topic, ids[topic]) for topic, was in expected.items() if topic in ids and changed(was, ids[topic]))
