"""Helpers for tests: programs, topics, records, logins, waiting. This package has no tests."""
