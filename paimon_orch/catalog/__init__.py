"""Catalogs: databases and tables in a file system, a REST server, a Hive metastore or SQL."""
