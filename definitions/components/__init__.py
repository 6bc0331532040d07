"""The components of this code location: one ``defs.yaml`` for each table that is maintained."""
