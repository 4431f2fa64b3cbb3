"""Implements the command line `groupkafka`. Only this package needs click and rich."""
