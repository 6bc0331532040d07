"""Merge engines: deduplicate, first-row, partial-update and aggregation."""
