"""Makes Kafka clients and asks the brokers about topics, partitions, offsets and groups."""
