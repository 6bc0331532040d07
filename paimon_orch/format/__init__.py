"""Bytes to values and back, pure and without I/O: one module a section of the table format."""
