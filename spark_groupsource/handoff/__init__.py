"""The rules of the hand-off, without a client, a thread or a clock: who reads a range, whatever dies when."""
