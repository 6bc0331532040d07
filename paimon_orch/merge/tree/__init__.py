"""Levels and sorted runs of a bucket, and the choice of what to compact."""
