"""What tests use: programs, topics, records, logins, waiting. No test is here."""
