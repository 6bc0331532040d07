"""Row-level changes: DELETE, UPDATE and MERGE INTO."""
