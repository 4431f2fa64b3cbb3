"""The generation under which librdkafka's consumer would commit now."""

from __future__ import annotations

import struct

from confluent_kafka import Consumer

from spark_groupsource.errors import MembershipError

_METADATA_MAGIC = b"CGMDv2:"


def generation_of(consumer: Consumer) -> int:
    """The consumer's generation (classic) or member epoch (KIP-848); -1 outside a group.

    librdkafka has no public getter; its serialized ConsumerGroupMetadata carries the number in native byte order.

    Raises:
        MembershipError: this version of librdkafka serializes it in another way.
    """
    serialized = consumer.consumer_group_metadata()
    if not isinstance(serialized, bytes) or not serialized.startswith(_METADATA_MAGIC):
        raise MembershipError("this version of confluent-kafka hides the group's generation; see the versions in docs/running.md")
    generation: int = struct.unpack_from("=i", serialized, len(_METADATA_MAGIC))[0]
    return generation
