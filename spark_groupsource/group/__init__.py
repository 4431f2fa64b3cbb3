"""Makes this driver a member of its group.

member.py runs the consumer's thread and the group's callbacks, ledger.py keeps the records of the owned partitions, and
fenced_commits.py commits them. The package handoff describes the life of a partition.
"""
