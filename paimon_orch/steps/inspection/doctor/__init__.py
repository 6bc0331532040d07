"""The doctor: what is wrong or slow in tables, with the command that fixes it."""
