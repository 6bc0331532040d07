"""Metadata and data files that cannot be read, and what a table is rolled back to."""
