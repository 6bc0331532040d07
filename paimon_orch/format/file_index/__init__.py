"""Indexes of data files: container, bloom filter, bitmap, range bitmap and BSI, and what they say of a predicate."""
