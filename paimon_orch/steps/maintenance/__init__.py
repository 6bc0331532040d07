"""Maintains statistics, bucket counts, file indexes, manifests and tags."""
