"""Removal of orphan files and of entries whose files are missing."""
