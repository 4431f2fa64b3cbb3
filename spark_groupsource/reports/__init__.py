"""Small files on the driver's host with which the processes of one driver, and of its queries, inform each other."""
