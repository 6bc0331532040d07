"""Converts columns of old files to the read schema."""
