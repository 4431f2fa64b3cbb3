"""`groupkafka check`. `command.py` lists the steps, and `source.py`, `group.py` and `sink.py` have them."""
