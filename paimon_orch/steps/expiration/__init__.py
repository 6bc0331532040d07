"""Expires snapshots, changelogs, partitions and tags."""
