"""Writes to a table: routing rows to buckets, and the files of level 0."""
