"""Implements the `groupkafka` command line. Only this package needs click and rich."""
