"""Exchanges small files between the processes of one driver and its queries, on the driver's host."""
