"""What the brokers know: topics, partitions, offsets, groups; and how a client that asks them is made."""
