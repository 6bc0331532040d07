"""Makes a table known to other systems: Iceberg readers, a catalog, readers that wait for partitions."""
