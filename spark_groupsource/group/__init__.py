"""This driver as a member of its group.

member.py has the consumer's thread and the group's callbacks, ledger.py the records of the owned partitions. A commit is fenced
in fenced_commits.py. The package handoff describes a partition's life.
"""
