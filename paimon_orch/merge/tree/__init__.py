"""Levels and sorted runs of a bucket, and the selection of files to compact."""
