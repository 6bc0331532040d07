"""Commits changes: detects conflicts and creates the next snapshot."""
