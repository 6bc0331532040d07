"""Byte-level tools of the format: batches of binary values and Roaring bitmaps."""
