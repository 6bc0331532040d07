"""Expiration of snapshots, changelogs, partitions and tags."""
