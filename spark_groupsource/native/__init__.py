"""Calls librdkafka's C API and this package's own C code with ctypes, for the reader (fetch/) and the producer (sink/).

- libraries.py loads both libraries and checks them. structs.py and functions.py describe them to ctypes.
- client.py makes a consumer or a producer from finished settings, and gives it login tokens.
- _intake.c makes Arrow record batches of fetched records, for fetch/native_consumer.py.
- _outlet.c hands the rows of Arrow record batches to a producer, for sink/native_producer.py.
"""
