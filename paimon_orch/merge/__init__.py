"""The merge tree: levels, compaction strategies, sort-merge reader, merge engines and lookup."""
