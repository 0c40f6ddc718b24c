"""The append-only record of a session: write, read, verify."""
