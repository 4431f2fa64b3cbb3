"""`make demo`: two Spark queries in one consumer group, a hand-off between them, and a count of every record.

__main__.py       the command, and what it keeps if the demo fails
story.py          what happens, in which order
query.py          one query, in its own process
query_process.py  that process, as the story sees it
query_state.py    what the story knows of a query
producer.py       the live producer
count.py          was every record counted once?
view.py           what the terminal shows
"""
