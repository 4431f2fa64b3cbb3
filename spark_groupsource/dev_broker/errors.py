"""What starting, resolving or running a development broker raises."""

from __future__ import annotations

from spark_groupsource.errors import GroupKafkaError


class BrokerStartError(GroupKafkaError):
    """The development broker cannot be resolved or started: no Java, no jars, a node that died or does not answer."""
