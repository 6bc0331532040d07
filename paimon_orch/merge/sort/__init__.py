"""Key order, the sort-merge reader and space-filling curves."""
