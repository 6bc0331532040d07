"""Reports a table to other systems: Iceberg readers, catalogs, readers of done-files."""
