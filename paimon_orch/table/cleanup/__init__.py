"""Which files are referenced, and the safe deletion of those that are not."""
