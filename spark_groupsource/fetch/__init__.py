"""Reads a range of one partition into Arrow record batches, on the executors.

contract.py states what every reader guarantees. There are two readers:

- The native reader (native_consumer.py) makes Arrow in native_arrow.py: native/_intake.c copies librdkafka's messages into
  Arrow's buffers, so that no record becomes a Python object.
- The pure reader (pure_consumer.py) makes Arrow in pure_arrow.py from the messages of confluent-kafka.

choice.py chooses one of them. Both share the rest:

- consumer_cache.py keeps consumers from task to task.
- reading.py reads a range with a consumer.
- shared.py reads small ranges of several partitions together, and leaves everything doubtful to reading.py. Only the native
  reader has a consumer for that (native_shared.py).
- bounds.py asks for the log's bounds, and lost_ranges.py compares them with the range.
"""
