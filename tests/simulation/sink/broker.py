"""The part of Kafka that the sink relies on: transactional ids, epochs, and offsets that become visible with the rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException

from spark_groupsource.sink.token import Committed


@dataclass
class Transaction:
    """What an open transaction has so far."""

    rows: list[str] = field(default_factory=list)
    offset: tuple[str, Committed] | None = None
    """For which group, and what."""


@dataclass
class TransactionalId:
    """A transactional id, as its coordinator knows it."""

    epoch: int = 0
    open: Transaction | None = None


class Broker:
    """Everything that survives the processes."""

    def __init__(self) -> None:
        self.ids: dict[str, TransactionalId] = {}
        self.offsets: dict[str, tuple[int, Committed]] = {}
        """By group: when it was committed, and what."""
        self.pending: dict[str, Committed] = {}
        """Offsets of committed transactions that the group's coordinator has still to read from its log."""
        self.visible: Counter[str] = Counter()
        """How often a reader of committed records finds each row."""
        self.now = 0

    def take(self, name: str) -> int:
        """Take a transactional id: its open transaction is aborted, and every earlier producer is fenced."""
        found = self.ids.setdefault(name, TransactionalId())
        found.open = None
        found.epoch += 1
        return found.epoch

    def write(self, name: str, epoch: int, rows: list[str]) -> None:
        """Write rows within the transaction."""
        self._transaction(name, epoch).rows.extend(rows)

    def send_offset(self, name: str, epoch: int, group: str, offset: Committed) -> None:
        """Commit an offset within the transaction."""
        self._transaction(name, epoch).offset = (group, offset)

    def end(self, name: str, epoch: int, *, commit: bool) -> None:
        """Commit or abort the transaction."""
        transaction = self._transaction(name, epoch)
        self.ids[name].open = None
        if commit:
            self.visible.update(transaction.rows)
            if transaction.offset is not None:
                group, offset = transaction.offset
                self.pending[group] = offset

    def settle(self, group: str) -> None:
        """Let the group's coordinator show the offset of the last committed transaction."""
        self.commit(group, self.pending.pop(group))

    def time_out(self, name: str) -> None:
        """Abort the open transaction, as its coordinator does after `transaction.timeout.ms`."""
        self.ids[name].open = None
        self.ids[name].epoch += 1

    def commit(self, group: str, offset: Committed) -> None:
        """Commit an offset of a group."""
        self.now += 1
        self.offsets[group] = (self.now, offset)

    def is_unstable(self, group: str) -> bool:
        """Whether a transaction commits an offset for the group that is not visible yet."""
        still_open = (found.open for found in self.ids.values() if found.open is not None)
        return group in self.pending or any(one.offset is not None and one.offset[0] == group for one in still_open)

    def expire(self, until: int) -> None:
        """Forget every offset that was committed until then."""
        self.offsets = {group: kept for group, kept in self.offsets.items() if kept[0] > until}

    def _transaction(self, name: str, epoch: int) -> Transaction:
        found = self.ids.setdefault(name, TransactionalId())
        if found.epoch != epoch or not epoch:
            raise KafkaException(KafkaError(KafkaError._FENCED, "fenced", fatal=True))
        if found.open is None:
            found.open = Transaction()
        return found.open
