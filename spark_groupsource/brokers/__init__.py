"""Asks the brokers about topics, partitions, offsets and groups, and makes the clients for that."""
