"""Reads of a table: planning, pruning, reading buckets, and differences between snapshots."""
