"""Implements `groupkafka check`: command.py lists the steps, which are in source.py, group.py and sink.py."""
