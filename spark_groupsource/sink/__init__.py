"""The sink, which writes each row of a micro-batch to its Kafka topic exactly once, or at least once."""
