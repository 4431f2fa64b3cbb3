"""Makes this driver a member of its group.

member.py has the consumer's thread and the group's callbacks, ledger.py the records of the owned partitions, and
fenced_commits.py the fenced commits. The package handoff describes the life of a partition.
"""
