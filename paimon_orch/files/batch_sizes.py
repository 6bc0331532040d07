"""Sizes of batches and row groups for reading, merging and writing data files."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSizes:
    """Numbers of rows that bound the memory of readers and writers, and sizes of row groups."""

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

    min_copied_group_bytes: int = 512 << 10
    """The minimum mean size of the row groups of a Parquet file that is copied by row groups.

    Readers pay for each row group of the new file: they decode its part of the footer and, on
    object stores, send at least one request. Reading 8 columns needs 3 % more CPU with row groups
    of 512 KB than with 8 MB, and 13 % more with 256 KB.
    """

    min_copied_chunk_bytes: int = 32 << 10
    """The minimum mean size of the column chunks of such a file.

    Reading 40 columns needs 5 % more CPU with column chunks of 32 KB, and 18 % with 16 KB.
    """

    def plan_merge(self, run_rows: Sequence[int]) -> list[int]:
        """Return the batch size of each run of a merge, in proportion to the rows of the run.

        With equal batch sizes, rows of small runs would wait in memory for the largest run.
        """
        largest = max([1, *run_rows])
        return [
            max(self.min_merge_batch_rows, self.batch_rows * rows // largest) for rows in run_rows
        ]


DEFAULT_BATCH_SIZES = BatchSizes()
