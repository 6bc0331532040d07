"""Readers of buckets, one for each kind of table."""
