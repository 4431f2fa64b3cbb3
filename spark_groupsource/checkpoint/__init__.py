"""Reads a query's checkpoint files to find out how far the query has progressed."""
