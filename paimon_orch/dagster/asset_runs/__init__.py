"""Runs of the compaction and the file index assets."""
