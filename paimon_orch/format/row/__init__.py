"""Binary rows: keys, partitions and statistics as bytes."""
