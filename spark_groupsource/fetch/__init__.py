"""A range of one partition in, Arrow record batches out. This runs on the executors.

contract.py says what every reader guarantees. There are two readers:

- The native reader (native_consumer.py) makes Arrow in native_arrow.py: native/_intake.c copies librdkafka's messages into
  Arrow's buffers, so that no record becomes a Python object.
- The pure reader (pure_consumer.py) makes Arrow in pure_arrow.py from the messages of confluent-kafka.

The module choice.py chooses one of them. The rest is the same for both:

- consumer_cache.py keeps consumers from task to task.
- reading.py reads a range with one of them.
- shared.py reads small ranges of several partitions at a time, and leaves to reading.py what is not sure. Only the native reader
  has a consumer for that (native_shared.py).
- bounds.py asks for the log's bounds, and lost_ranges.py compares them with the range.
"""
