"""Schema changes and the rules of ALTER TABLE."""
