"""Small files on the driver's host, by which the processes of one driver tell each other what only one of them learns."""
