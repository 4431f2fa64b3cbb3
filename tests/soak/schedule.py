"""What happens when in a run: a seeded list of disturbances, and the settings that follow from a run's length. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from random import Random

LONG_LIVED = "A"
"""This query is never disturbed: its processes live for the whole run, and their memory is judged."""
STRUCK = ("B", "C")
"""These queries are disturbed in turn."""
NODES = (1, 2, 3)

PARTITIONS = 6
GROWTH = (1 / 8, 2 / 8, 3 / 8)
"""When the topic gets another partition, as parts of the run: never in the last half, since each partition takes memory."""

SHORTEST_S = 60.0


class Kind(str, Enum):
    """What can happen."""

    KILL_DRIVER = "driver killed"
    """SIGKILL for the JVM, its Python and the runner at once. The runner's session has to run out."""
    KILL_RUNNER = "runner killed"
    """SIGKILL for the runner. Spark fails the query."""
    TERMINATE = "driver stopped"
    """SIGTERM for the JVM, as a scheduler stops a driver."""
    TAKE_AWAY = "member taken away"
    """The query is stopped in an orderly way, and stays away until it is added."""
    ADD = "member added"
    """The query that was taken away starts on its checkpoint."""
    RESTART_BROKER = "broker restarted"
    """SIGTERM for one broker."""
    KILL_BROKER = "broker killed"
    """SIGKILL for one broker."""
    GROW = "partition added"


@dataclass(frozen=True)
class Disturbance:
    """One thing that happens to a query, a broker or the topic, `at` this second of the run.

    What it ends comes back after `away_s` seconds. A query that is taken away comes back with the next `ADD`.
    """

    at: float
    kind: Kind
    target: str
    away_s: float = 0.0


@dataclass(frozen=True)
class Plan:
    """What follows from the length and the seed of a run."""

    run_s: float
    seed: int
    protocol: str = "classic"

    @property
    def every_s(self) -> float:
        """Seconds from one disturbance to the next: as many as twenty in a run, and at least one in three minutes."""
        return min(max(self.run_s / 20, 20.0), 180.0)

    @property
    def sample_s(self) -> float:
        """Seconds between two looks at the processes: a minute, and less in a run of less than four hours."""
        return min(max(self.run_s / 240, 2.0), 60.0)

    @property
    def retention_s(self) -> float:
        """How long the topic keeps records: longer than any query may be away, so that nothing expires unread.

        A Spark that is started while the machine has too much to do takes minutes.
        """
        return 240.0 + 3 * self.every_s

    @property
    def half_s(self) -> float:
        """Where the last half begins."""
        return self.run_s / 2

    def disturbances(self) -> list[Disturbance]:
        """Return all that happens, in the order of time."""
        grow = [Disturbance(part * self.run_s, Kind.GROW, "topic") for part in GROWTH]
        return sorted([*grow, *self._strikes()], key=lambda one: one.at)

    def _strikes(self) -> Iterator[Disturbance]:
        random = Random(self.seed)
        number = 0
        at = self.every_s
        while True:
            for drawn in _round(random):
                # The last one has a whole interval to be over in, and nobody is away at the end.
                if at > self.run_s - self.every_s:
                    return
                late = drawn is Kind.TAKE_AWAY and at + 2 * self.every_s > self.run_s - self.every_s
                kind = Kind.TERMINATE if late else drawn
                broker = kind in (Kind.RESTART_BROKER, Kind.KILL_BROKER)
                target = str(random.choice(NODES)) if broker else STRUCK[number % len(STRUCK)]
                if kind is Kind.TAKE_AWAY:
                    # While it is away another query is struck, or a broker.
                    yield Disturbance(at, kind, target)
                    at += self.every_s
                    other = STRUCK[(number + 1) % len(STRUCK)]
                    yield Disturbance(at, Kind.KILL_RUNNER, other, 2.0)
                    at += self.every_s
                    yield Disturbance(at, Kind.ADD, target)
                else:
                    yield Disturbance(at, kind, target, round(random.uniform(1.0, self.every_s / 4), 1))
                number += not broker
                at += self.every_s


def _round(random: Random) -> list[Kind]:
    """Return every kind of strike once, in random order."""
    kinds = [Kind.KILL_DRIVER, Kind.TERMINATE, Kind.TAKE_AWAY, Kind.RESTART_BROKER, Kind.KILL_BROKER]
    random.shuffle(kinds)
    return kinds
