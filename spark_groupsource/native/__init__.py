"""Calls librdkafka's C API and this package's own C code with ctypes, for the reader (fetch/) and the producer (sink/).

- libraries.py loads both libraries and checks them. structs.py and functions.py declare their interfaces for ctypes.
- client.py creates a consumer or a producer from finished settings, and provides its login tokens.
- _intake.c builds Arrow record batches from fetched records, for fetch/native_consumer.py.
- _outlet.c passes the rows of Arrow record batches to a producer, for sink/native_producer.py.
"""
