"""Batch sizes for reading, merging and writing rows of data files."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSizes:
    """Numbers of rows that bound the memory of readers and writers."""

    row_group_rows: int = 262_144
    """The maximum number of rows of a row group."""

    min_row_group_rows: int = 1_000
    """The minimum number of rows of a row group with large rows.

    Java Paimon checks the file size after the same number of rows.
    """

    batch_rows: int = 65_536
    """The maximum number of rows of a batch that is read."""

    min_merge_batch_rows: int = 16_384
    """The minimum batch size of a small run: each loaded batch ends a merge batch."""

    def plan_merge(self, run_rows: Sequence[int]) -> list[int]:
        """Return the batch size of each run of a merge, in proportion to the rows of the run.

        With equal batch sizes, rows of small runs would wait in memory for the largest run.
        """
        largest = max([1, *run_rows])
        return [
            max(self.min_merge_batch_rows, self.batch_rows * rows // largest) for rows in run_rows
        ]


DEFAULT_BATCH_SIZES = BatchSizes()
