"""Commits: conflict detection and the next snapshot."""
