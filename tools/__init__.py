"""Programs of the Makefile that run tests in other environments."""
