"""One run of one query, without pyspark: joining the group, planning, claiming and confirming.

cycle.py has the steps that Spark asks for. The package handoff describes a partition's life.
"""
