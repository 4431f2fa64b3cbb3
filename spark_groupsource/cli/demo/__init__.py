"""`groupkafka demo`: two Spark queries in one consumer group, a hand-over between them, and a count of every record.

command.py        the click command, and what is left behind when it fails
story.py          what happens, in which order
query.py          one query, in a process of its own
query_process.py  that process as the story sees it
producer.py       the live producer
count.py          was every record counted once?
view.py           what stands on the terminal
"""
