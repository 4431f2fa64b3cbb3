"""Runs a query without pyspark: joins the group, and plans, claims and confirms micro-batches.

cycle.py has a method for each of Spark's calls. The handoff package describes the life of a partition.
"""
