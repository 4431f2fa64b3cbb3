"""Makes this driver a member of its group.

member.py runs the consumer's thread and the group's callbacks, ledger.py keeps the owned partitions' records, and
fenced_commits.py commits them. The handoff package describes the life of a partition.
"""
