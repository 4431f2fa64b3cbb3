"""The adapter for Spark: its calls become steps of the query, and its processes are set up."""
