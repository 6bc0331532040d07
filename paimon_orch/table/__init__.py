"""Tables: catalog, metadata, schema changes, scans, writes, commits and file cleanup."""
