"""Returns topics' current ids. A changed id is accepted only after brokers have reported it several times.

A topic that was deleted and created again is a different topic with a different id. A broker may lag behind the others for a
moment, so a single answer is not enough to give up on a topic.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from itertools import islice

from spark_groupsource.handoff.losses import topic_gone
from spark_groupsource.timeouts import RETRY_INTERVAL_S

BELIEVE_AFTER = 5
"""How many times brokers must report that a topic does not exist or has a different id before the change is accepted."""


BELIEVED_AT_MOST = 1000
"""The maximum number of changes to remember for topics other than those just asked about. Without a limit, they would add up,
because a query that subscribes to a pattern may get new topics for months."""


class TopicIds:
    """Returns topics' current ids, and remembers which changes brokers have confirmed.

    The runner's main thread and a survey's threads use it. They share one frozenset, which is replaced, never modified. If two
    threads replace it at the same time, one change is lost and must be confirmed again later.
    """

    def __init__(
        self, ask: Callable[[Iterable[str]], Mapping[str, str | None]], *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """Start with no confirmed changes.

        Args:
            ask: returns topics' ids, as `topics.Topics.ids` does.
            sleep: waits for a number of seconds.
        """
        self._ask = ask
        self._sleep = sleep
        self._believed: frozenset[tuple[str, str | None]] = frozenset()

    def now(self, expected: Mapping[str, str | None]) -> Mapping[str, str | None]:
        """Return each topic's id: `None` for a topic that does not exist, "" from brokers without topic ids.

        The result does not contain topics for which no broker answers.

        Args:
            expected: the topics, each with the id that it had before, or `None` if unknown.

        Raises:
            NotAuthorized, AuthenticationFailed: raised at the first such answer.
        """
        ids = self._ask(expected)
        # Forget changes that no longer hold; a change that comes back must be confirmed again.
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
    """Return the topics that do not exist (`None`), or do not have the expected id, each with its current id."""
    return frozenset(
        (topic, ids[topic]) for topic, earlier_id in expected.items() if topic in ids and topic_gone(earlier_id, ids[topic])
    )
