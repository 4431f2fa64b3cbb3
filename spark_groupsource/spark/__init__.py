"""Spark's side: its calls turned into steps of the query, and the processes that Spark starts."""
