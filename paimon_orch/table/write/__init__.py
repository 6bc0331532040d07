"""Writes rows: converts them, routes them to buckets, and writes level-0 files."""
