"""The command line. Only this package needs click and rich."""
