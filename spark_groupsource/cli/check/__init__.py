"""Implements `groupkafka check`. command.py runs the steps, which are in source.py, group.py and sink.py."""
