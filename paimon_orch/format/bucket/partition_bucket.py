"""The identity of a bucket within a table."""

from typing import NamedTuple


class PartitionBucket(NamedTuple):
    """A partition, as its serialized binary row, and the number of a bucket in it."""

    partition: bytes
    bucket: int
