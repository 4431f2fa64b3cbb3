"""Counts what a run of a query does, and serves the figures to Prometheus."""
