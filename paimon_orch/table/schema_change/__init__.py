"""Schema changes, and what an ALTER TABLE allows."""
