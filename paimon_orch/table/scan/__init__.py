"""Reads tables: planning, pruning, reading buckets, and differences between snapshots."""
