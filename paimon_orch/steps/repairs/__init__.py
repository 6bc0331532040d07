"""Repairs what the doctor finds; each repair is a new snapshot, or puts a file aside."""
