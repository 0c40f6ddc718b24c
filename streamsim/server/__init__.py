"""Sockets and clock around a session, HTTP around the sessions."""
