"""Snapshots, schemas, tags, branches, consumers and manifests in storage."""
