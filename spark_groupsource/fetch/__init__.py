"""Reads offset ranges into Arrow record batches on the executors.

contract.py defines what every reader takes and returns. There are two readers:

- The native reader (native_consumer.py) calls librdkafka: native/_intake.c copies its messages into Arrow buffers, so no record
  becomes a Python object.
- The pure reader (pure_consumer.py) builds Arrow batches from confluent-kafka's messages.

choice.py chooses between them. Both share the other modules:

- consumer_cache.py caches consumers between tasks.
- reading.py reads a range with a consumer.
- shared.py reads small ranges from several partitions in one pass, and leaves every doubtful case to reading.py. Only the native
  reader has a consumer that can do this (native_shared.py).
- bounds.py asks brokers where a log starts and ends, and lost_ranges.py compares these bounds with the range.
"""
