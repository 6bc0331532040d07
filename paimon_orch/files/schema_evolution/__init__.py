"""Columns of old files in the shape of the read schema."""
