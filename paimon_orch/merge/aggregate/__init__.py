"""Aggregate functions of columns."""
