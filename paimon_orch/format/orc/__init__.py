"""The parts of ORC files that pyarrow does not expose or does not check."""
