"""What only the development broker and the demo raise."""

from __future__ import annotations

from spark_groupsource.errors import GroupKafkaError


class BrokerStartError(GroupKafkaError):
    """The development broker cannot be resolved or started: no Java, no jars, a node that ended or does not answer."""


class DemoFailed(GroupKafkaError):
    """A process of the demo failed, or a step took too long; the message ends with the end of the log."""
