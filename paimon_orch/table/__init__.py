"""One table in time: catalog, snapshots, scan, read, write, commit."""
