"""The next sequence numbers of buckets, read when the rows of their partitions are written.

See docs/format/data-files.md#order-and-sequence-numbers.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from paimon_orch.errors import UnsupportedError
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.manifest.live_files import BucketGroups
from paimon_orch.table.expired_reads import repeat_if_expired
from paimon_orch.table.scan.partition_pruner import build_partition_manifest_selector
from paimon_orch.table.table_state import TableState

MAX_SEQUENCE = (1 << 63) - (1 << 40)
"""Numbers above leave fewer than a write may need for its rows."""


@dataclass(slots=True)
class PartitionSequences(Mapping[PartitionBucket, int]):
    """The next sequence numbers of the partitions that were read; for writers of one process.

    A store whose requests take long is asked only for the manifests of the written partitions.
    """

    state: TableState
    """The table; a newer state if its snapshot expires before the numbers are read."""
    _numbers: dict[PartitionBucket, int] = field(default_factory=dict)
    _partitions: set[bytes] = field(default_factory=set)

    def read(self, partitions: set[bytes]) -> None:
        """Read the numbers of partitions, unless they were read before."""
        missing = partitions - self._partitions
        if missing:
            self._numbers |= self._compute(missing, state=self.state)
            self._partitions |= missing

    @repeat_if_expired
    def _compute(
        self, partitions: set[bytes], *, state: TableState | None
    ) -> dict[PartitionBucket, int]:
        self.state = state = state or self.state.refresh()
        if state.snapshot is None:
            return {}
        files = state.manifests.read_live_files(
            state.snapshot,
            manifests=build_partition_manifest_selector(partitions, state.schema),
            partitions=lambda _: partitions,
        )
        return compute_next_sequences(files.group_by_bucket())

    def __getitem__(self, bucket: PartitionBucket) -> int:
        """Return the number of a bucket of a partition that was read."""
        self.read({bucket.partition})
        return self._numbers[bucket]

    def __iter__(self) -> Iterator[PartitionBucket]:
        """Iterate over the buckets that were read."""
        return iter(self._numbers)

    def __len__(self) -> int:
        """Return the number of buckets that were read."""
        return len(self._numbers)


def compute_next_sequences(groups: BucketGroups) -> dict[PartitionBucket, int]:
    """Return the next sequence number of each bucket with files.

    Raises :class:`UnsupportedError` if new rows would need a number of more than 64 bits.
    """
    buckets = groups.list_buckets()
    numbers = groups.max(groups.files.max_sequence_numbers).tolist()
    for bucket, number in zip(buckets, numbers, strict=True):
        if number > MAX_SEQUENCE:
            raise UnsupportedError(
                f"bucket {bucket.bucket} has files with the sequence number {number}; few or no "
                "numbers are greater, so no rows can be added"
            )
    return {bucket: 1 + number for bucket, number in zip(buckets, numbers, strict=True)}
