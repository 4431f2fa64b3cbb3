"""The generation under which librdkafka's consumer would commit now."""

from __future__ import annotations

import struct

from confluent_kafka import Consumer

from spark_groupsource.errors import MembershipError

_METADATA_MAGIC = b"CGMDv2:"


def generation_of(consumer: Consumer) -> int:
    """Return the consumer's generation (classic) or member epoch (KIP-848); -1 outside a group.

    librdkafka has no public getter. Its serialized ConsumerGroupMetadata has the number, in native byte order.

    Raises:
        MembershipError: this version of librdkafka serializes it differently.
    """
    serialized = consumer.consumer_group_metadata()
    if not isinstance(serialized, bytes) or not serialized.startswith(_METADATA_MAGIC):
        raise MembershipError(
            "This version of confluent-kafka does not show the group's generation. Install a version that docs/running.md lists."
        )
    generation: int = struct.unpack_from("=i", serialized, len(_METADATA_MAGIC))[0]
    return generation
