"""A range of one partition in, Arrow record batches out. This runs on the executors.

contract.py says what every reader guarantees. There are two readers:

- The native reader (native_consumer.py) makes Arrow in native_arrow.py. _native.c copies librdkafka's messages into its
  buffers, and no record becomes a Python object.
- The pure reader (pure_consumer.py) makes Arrow in pure_arrow.py from the messages of confluent-kafka.

choice.py chooses between them. The way of a range is the same for both: reading.py reads it with a consumer that
consumer_cache.py keeps from task to task, bounds.py asks for the log's bounds, and lost_ranges.py compares them with the range.
"""
