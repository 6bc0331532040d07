"""Read-only checks and reports of tables."""
