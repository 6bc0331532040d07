"""Chain tables: partitions that are merged from a snapshot branch and a delta branch."""
