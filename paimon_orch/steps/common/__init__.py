"""Shared parts of steps: the protocol, executors, retries and file deletion."""
