"""Catalogs behind a REST server, which makes the commits of its tables.

See docs/format/catalogs.md#rest-catalogs.
"""
