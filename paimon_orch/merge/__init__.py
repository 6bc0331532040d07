"""The merge tree: levels, picking, k-way merge, merge engines, lookup."""
