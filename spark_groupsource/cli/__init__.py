"""The command line, which alone needs click and rich."""
