"""Reads ranges of partitions into Arrow record batches, on the executors.

contract.py defines what every reader takes and returns. There are two readers:

- The native reader (native_consumer.py) makes Arrow in native_arrow.py: native/_intake.c copies librdkafka's messages into
  Arrow's buffers, so that no record becomes a Python object.
- The pure reader (pure_consumer.py) makes Arrow in pure_arrow.py from the messages of confluent-kafka.

choice.py chooses one of them. Both share the other modules:

- consumer_cache.py keeps consumers from task to task.
- reading.py reads a range with a consumer.
- shared.py reads small ranges of several partitions together, and leaves all doubtful cases to reading.py. Only the native
  reader has a consumer for that (native_shared.py).
- bounds.py asks brokers where a log starts and ends, and lost_ranges.py compares that with the range.
"""
