"""The wire contract of streamsim, shared by server and agents; protocol/README.md is the text."""
