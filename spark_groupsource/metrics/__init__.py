"""Counts what a query does, and serves the numbers to Prometheus."""
