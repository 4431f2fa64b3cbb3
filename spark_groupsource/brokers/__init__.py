"""Requests to the brokers about topics, partitions, offsets and groups, and the clients that make them."""
