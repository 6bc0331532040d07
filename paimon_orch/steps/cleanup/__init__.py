"""Removes orphan files, and manifest entries of missing files."""
