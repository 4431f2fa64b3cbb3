"""The part of Kafka that the sink relies on: transactional ids, epochs, and offsets that become visible with the rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException

from spark_groupsource.sink.token import Committed


@dataclass
class Transaction:
    """The contents of an open transaction so far."""

    rows: list[str] = field(default_factory=list)
    offsets: dict[tuple[str, str], Committed] = field(default_factory=dict)
    """By group and topic."""


@dataclass
class TransactionalId:
    """A transactional id, as its coordinator stores it."""

    epoch: int = 0
    open: Transaction | None = None
    owner: object = None
    """The process that has taken it last."""


class Broker:
    """Everything that survives the processes."""

    def __init__(self) -> None:
        self.ids: dict[str, TransactionalId] = {}
        self.offsets: dict[tuple[str, str], tuple[int, Committed]] = {}
        """By group and topic: when it was committed, and what."""
        self.pending: dict[str, dict[str, Committed]] = {}
        """Offsets of committed transactions that the group's coordinator has still to read from its log, by group and topic."""
        self.visible: Counter[str] = Counter()
        """How often a reader of committed records finds each row."""
        self.set_back: set[str] = set()
        """Groups in which an offset has been replaced by an older one."""
        self.now = 0
        self.epochs = 0
        """How many a coordinator has given. An id that has expired never gets an old one again."""
        self.marked: dict[tuple[str, str], float] = {}
        """What the workers, which live long, remember to have marked."""

    def take(self, name: str, owner: object = None) -> int:
        """Take over a transactional id: abort its open transaction, and fence every earlier producer."""
        found = self.ids.setdefault(name, TransactionalId())
        found.open = None
        found.epoch = self._next_epoch()
        found.owner = owner
        return found.epoch

    def begin(self, name: str, epoch: int, owner: object) -> None:
        """Note which task uses a producer now, because a worker keeps it from task to task. Brokers are not told."""
        if name in self.ids and self.ids[name].epoch == epoch:
            self.ids[name].owner = owner

    def expire_id(self, name: str) -> None:
        """Forget a transactional id, as its coordinator does after `transactional.id.expiration.ms` without a transaction."""
        del self.ids[name]

    def write(self, name: str, epoch: int, rows: list[str]) -> None:
        self._transaction(name, epoch).rows.extend(rows)

    def send_offset(self, name: str, epoch: int, group: str, topic: str, offset: Committed) -> None:
        self._transaction(name, epoch).offsets[group, topic] = offset

    def end(self, name: str, epoch: int, *, commit: bool) -> None:
        transaction = self._transaction(name, epoch)
        self.ids[name].open = None
        if commit:
            self.visible.update(transaction.rows)
            for (group, topic), offset in transaction.offsets.items():
                self.pending.setdefault(group, {})[topic] = offset

    def settle(self, group: str) -> None:
        """Let the group's coordinator show all offsets of the last committed transaction together."""
        for topic, offset in self.pending.pop(group).items():
            self.commit(group, topic, offset)

    def time_out(self, name: str) -> None:
        """Abort the open transaction, as its coordinator does after `transaction.timeout.ms`."""
        self.ids[name].open = None
        self.ids[name].epoch = self._next_epoch()

    def commit(self, group: str, topic: str, offset: Committed) -> None:
        self.now += 1
        if (group, topic) in self.offsets and self.offsets[group, topic][1].offset > offset.offset:
            self.set_back.add(group)
        self.offsets[group, topic] = (self.now, offset)

    def offsets_of(self, group: str, topics: Collection[str] | None) -> dict[str, Committed]:
        """Return a group's visible offsets, by topic. `None`: for all topics."""
        found = {topic: kept[1] for (of, topic), kept in self.offsets.items() if of == group}
        return found if topics is None else {topic: found[topic] for topic in topics if topic in found}

    def is_unstable(self, group: str, topics: Collection[str] | None) -> bool:
        """Return whether a transaction has committed an offset for the group on these topics that is not visible yet.

        `None`: all topics. Brokers then check only those for which the group has an offset (KAFKA-17507).
        """
        asked = self.offsets_of(group, None).keys() if topics is None else topics
        still_open = (found.open.offsets for found in self.ids.values() if found.open is not None)
        pending = {(group, topic) for topic in self.pending.get(group, ())}
        return any((group, topic) in each for topic in asked for each in (pending, *still_open))

    def expire(self, until: int) -> None:
        """Forget every offset that was committed by then. A process that has been idle for so long renews its marks."""
        self.offsets = {place: kept for place, kept in self.offsets.items() if kept[0] > until}
        self.marked.clear()

    def create_again(self, topic: str) -> None:
        """Recreate a topic, and delete the group's offsets on it. The caller forgets the topic's rows."""
        self.offsets = {place: kept for place, kept in self.offsets.items() if place[1] != topic}
        self.pending = {
            group: left
            for group, found in self.pending.items()
            if (left := {each: found[each] for each in found if each != topic})
        }
        for name in [name for name, found in self.ids.items() if found.open is not None]:
            self.time_out(name)
        self.visible.clear()
        self.marked.clear()

    def _next_epoch(self) -> int:
        self.epochs += 1
        return self.epochs

    def _transaction(self, name: str, epoch: int) -> Transaction:
        found = self.ids.setdefault(name, TransactionalId())
        if found.epoch != epoch or not epoch:
            raise KafkaException(KafkaError(KafkaError._FENCED, "fenced", fatal=True))
        if found.open is None:
            found.open = Transaction()
        return found.open
