"""Reads and writes the values of BLOB columns."""
