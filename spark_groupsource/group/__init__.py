"""This driver as a member of its group: the consumer's thread, the records of its partitions, fenced commits."""
