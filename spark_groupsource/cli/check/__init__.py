"""`groupkafka check`: one step after the other, each with what it finds. `source.STEPS` and `sink.STEPS` are the whole check."""
