"""Compaction of one bucket: merge, lookup, changelog and deletion vectors."""
