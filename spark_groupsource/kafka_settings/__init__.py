"""Java's Kafka settings in librdkafka's words, or an error that says what to write instead."""
