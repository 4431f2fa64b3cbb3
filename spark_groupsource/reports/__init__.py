"""Small files on the driver's host through which the processes of one driver and its queries inform each other."""
