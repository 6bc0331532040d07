"""Checks and figures of a table; they change nothing."""
