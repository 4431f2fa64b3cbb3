"""What is allowed in the name of a group, and is probably not meant."""

from __future__ import annotations

import logging

log = logging.getLogger(__name__)


def warn_of_blanks(group: str) -> None:
    """Warn if blanks are around a group's name. No query shares partitions with one that wrote the name without them."""
    if group != group.strip():
        log.warning(
            "kafka.group.id = %r has blanks around the name. To Kafka they are a part of it, so this is another group than %r",
            *(group, group.strip()),
        )
