"""Catalogs in an SQL database: SQLite, PostgreSQL or MySQL. See docs/format/catalogs.md#jdbc-catalogs."""
