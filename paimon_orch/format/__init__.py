"""Encoding and decoding of the table format, without I/O: one module per section."""
