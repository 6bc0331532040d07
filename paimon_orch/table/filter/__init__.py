"""Filters: expressions, SQL text, and partition specs."""
