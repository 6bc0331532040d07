"""Compacts primary-key tables and append tables."""
