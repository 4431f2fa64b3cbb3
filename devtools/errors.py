"""The errors of the development broker and the demo."""

from __future__ import annotations

from spark_groupsource.errors import GroupKafkaError


class BrokerStartError(GroupKafkaError):
    """The development broker cannot be downloaded or started: no Java, no jars, or a node that has ended or does not answer."""


class DemoFailed(GroupKafkaError):
    """A process of the demo failed, or a step took too long. The message ends with the last lines of the log."""
