"""The encodings of Parquet that pyarrow does not expose."""
