"""Reads a query's checkpoint files to find out how far Spark has got with the query."""
