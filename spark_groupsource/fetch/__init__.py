"""On executors: a range of one partition in, Arrow record batches out; contract.py says what holds for every reader."""
