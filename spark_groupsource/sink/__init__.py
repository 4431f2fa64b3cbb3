"""The sink: rows of a micro-batch into Kafka topics, each row once."""
