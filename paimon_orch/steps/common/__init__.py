"""What all steps share: executors, retries and the deletion of files."""
