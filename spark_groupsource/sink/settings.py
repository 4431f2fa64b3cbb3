"""How a query writes: the finished settings that travel from the driver to the tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

DEFAULT_PREFIX = "groupkafka-"
"""What `transactionalIdPrefix` is if it is not set, before the query's id."""


@dataclass(frozen=True)
class SinkSettings:
    """How to write. It is pickled with the writer, and its repr shows no client setting.

    Args:
        producer: All settings of a task's producer in librdkafka's names, secrets included.
        requests: Those of the client that reads and commits offsets.
        topic: The topic of every row. `None`: the column `topic` names it.
        exactly_once: Whether tasks write in transactions.
        prefix: The option `transactionalIdPrefix`. `None`: it is made from the query's id.
        accept_batch: The option `acceptBatch`.
    """

    producer: Mapping[str, str] = field(repr=False)
    requests: Mapping[str, str] = field(repr=False)
    topic: str | None = None
    exactly_once: bool = False
    prefix: str | None = None
    accept_batch: int | None = None
