"""File indexes (bloom filter, bitmap, range bitmap, BSI), their container and evaluation."""
