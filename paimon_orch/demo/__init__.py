"""The demo: real flights through ingest, compaction and checks."""
