"""Reads the files of a query's checkpoint, to find out how far Spark is with the query."""
