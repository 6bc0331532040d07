"""Data files: readers and writers, with statistics, schema evolution and deletion vectors."""
