"""Publishes the commits of a table as Iceberg metadata, so that Iceberg readers see its rows."""
