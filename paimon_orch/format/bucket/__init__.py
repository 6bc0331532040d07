"""Bucket functions, and the hash index of dynamic buckets."""
