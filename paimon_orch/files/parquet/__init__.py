"""Parquet data files: reading, single pages, footers and INT96."""
