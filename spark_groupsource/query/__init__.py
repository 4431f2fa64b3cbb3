"""Runs a query without pyspark: joins the group, and plans, claims and confirms micro-batches.

cycle.py has a method for each of Spark's calls. The package handoff describes the life of a partition.
"""
