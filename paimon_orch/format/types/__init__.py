"""Data types, their Arrow forms, casts and predicates."""
