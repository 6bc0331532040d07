"""The demo: real flights are written, compacted and verified."""
