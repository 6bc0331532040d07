"""Compaction of primary-key and append tables."""
