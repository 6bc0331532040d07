"""Tables of a Hive metastore. See docs/format/catalogs.md#hive-metastores."""
