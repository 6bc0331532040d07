"""Dagster components: tables and databases from YAML."""
