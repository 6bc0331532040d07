"""Runs work units as Spark tasks."""
