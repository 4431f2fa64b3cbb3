"""Adapts the package to Spark: turns Spark's calls into steps of a query, and sets up the processes that Spark starts."""
