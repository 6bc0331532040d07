"""Selects the files of a data-evolution table to compact together, by ranges of row ids.

See docs/format/row-tracking.md#compaction.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from paimon_orch.errors import UnsupportedError
from paimon_orch.format.arrays import (
    Indices,
    Int32Array,
    Int64Array,
    Mask,
    to_arrow_array,
    to_numpy,
)
from paimon_orch.format.manifest.live_files import UNKNOWN, LiveFiles
from paimon_orch.format.options import Options
from paimon_orch.format.options.core_options import (
    COMPACTION_FORCE_REWRITE_ALL_FILES,
    COMPACTION_MIN_FILE_NUM,
    SOURCE_SPLIT_OPEN_FILE_COST,
)
from paimon_orch.format.paths import BLOB_SUFFIX


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRangeStrategy:
    """Packs adjacent ranges of row ids into bins, each of which becomes one file."""

    target_size: int
    min_files: int
    min_files_of_full: int
    """The number of files that a full compaction joins; 1 rewrites files that are alone."""
    open_file_cost: int

    @classmethod
    def of(cls, options: Options) -> "RowRangeStrategy":
        """Return the strategy for the options of a table."""
        return cls(
            target_size=options.target_file_size(primary_key=False),
            min_files=max(2, options.get(COMPACTION_MIN_FILE_NUM)),
            min_files_of_full=1 if options.get(COMPACTION_FORCE_REWRITE_ALL_FILES) else 2,
            open_file_cost=options.get(SOURCE_SPLIT_OPEN_FILE_COST),
        )

    def select(self, files: LiveFiles, rows: Indices, *, full: bool) -> list[Indices]:
        """Return the files of each bin, ordered by row id; ``rows`` are the files to choose from.

        ``full`` selects all bins with at least two files, or all bins if each file must be
        rewritten. Files without row ids are never selected.
        Raises :class:`UnsupportedError` if files have only a part of their rows in common.
        """
        return self.pack(files, rows, min_files=self.get_min_files(full=full))

    def get_min_files(self, *, full: bool) -> int:
        """Return the number of files that a compaction joins at least."""
        return self.min_files_of_full if full else self.min_files

    def pack(self, files: LiveFiles, rows: Indices, *, min_files: int = 1) -> list[Indices]:
        """Return the files of each bin with enough files, ordered by row id; no BLOB files."""
        assert files.first_row_ids is not None
        rows = rows[files.first_row_ids[rows] != UNKNOWN]
        rows = rows[~find_blob_files(files, rows)]
        if len(rows) < min_files:
            return []
        ranges = RowRanges.of(files, rows, self.open_file_cost)
        bins = (
            ranges.rows[start:end]
            for first, last in ranges.find_segments(self.target_size, min_files)
            for start, end in ranges.pack(first, last, self.target_size)
        )
        return [files_of_bin for files_of_bin in bins if len(files_of_bin) >= min_files]


def find_blob_files(files: LiveFiles, rows: Indices) -> Mask:
    """Return which of some files are BLOB files; tables without them need no names of files."""
    if files.names is None:
        return np.zeros(len(rows), bool)
    is_blob: Mask = to_numpy(pc.ends_with(files.names.take(to_arrow_array(rows)), BLOB_SUFFIX))
    return is_blob


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRanges:
    """The ranges of row ids of sorted files; a range has one or more files."""

    rows: Indices
    """The files, ordered by partition and row id."""
    starts: Indices
    """The index of the first file of each range, and the number of files."""
    partition_codes: Int32Array
    first_row_ids: Int64Array
    end_row_ids: Int64Array
    """The ids after the last rows."""
    weights: Int64Array
    follows: Mask
    """Whether the first row of the range follows the last row of the previous range."""

    @classmethod
    def of(cls, files: LiveFiles, rows: Indices, open_file_cost: int = 0) -> "RowRanges":
        """Return the ranges of some files with row ids; raises :class:`UnsupportedError`."""
        assert files.first_row_ids is not None
        order = np.lexsort((files.first_row_ids[rows], files.partition_codes[rows]))
        rows = rows[order]
        codes, first_ids = files.partition_codes[rows], files.first_row_ids[rows]
        counts = files.row_counts[rows]
        is_first = np.ones(len(rows), bool)
        is_first[1:] = (codes[1:] != codes[:-1]) | (first_ids[1:] != first_ids[:-1])
        if (counts[1:] != counts[:-1])[~is_first[1:]].any():
            number = np.flatnonzero((counts[1:] != counts[:-1]) & ~is_first[1:])[0]
            raise _build_overlap_error(first_ids[number])
        starts = np.flatnonzero(is_first)
        codes, first_ids, ends = codes[starts], first_ids[starts], (first_ids + counts)[starts]
        same_partition = codes[1:] == codes[:-1]
        overlaps = np.flatnonzero(same_partition & (first_ids[1:] < ends[:-1]))
        if len(overlaps):
            raise _build_overlap_error(first_ids[overlaps[0] + 1])
        costs = np.maximum(files.file_sizes[rows], open_file_cost)
        return cls(
            rows=rows,
            starts=np.append(starts, len(rows)),
            partition_codes=codes,
            first_row_ids=first_ids,
            end_row_ids=ends,
            weights=np.add.reduceat(costs, starts),
            follows=np.concatenate([[False], same_partition & (first_ids[1:] == ends[:-1])]),
        )

    def find_segments(self, target_size: int, min_files: int) -> Iterator[tuple[int, int]]:
        """Yield the first range and the end of each segment that may have a bin to compact.

        A segment is one large range, or adjacent ranges that are not large.
        """
        is_large = self.weights > target_size
        begins = ~self.follows | is_large
        begins[1:] |= is_large[:-1]
        firsts = np.flatnonzero(begins)
        lasts = np.append(firsts[1:], len(begins))
        has_enough = self.starts[lasts] - self.starts[firsts] >= min_files
        yield from zip(firsts[has_enough].tolist(), lasts[has_enough].tolist(), strict=True)

    def pack(self, first: int, last: int, target_size: int) -> Iterator[tuple[int, int]]:
        """Yield the first file and the end of each bin of a segment."""
        totals = np.cumsum(self.weights[first:last])
        start, before = 0, 0
        while start < len(totals):
            # a bin ends with the range that makes it larger than the target size
            end = min(int(np.searchsorted(totals, before + target_size, "right")) + 1, len(totals))
            yield int(self.starts[first + start]), int(self.starts[first + end])
            start, before = end, int(totals[end - 1])


def _build_overlap_error(first_row_id: int) -> UnsupportedError:
    return UnsupportedError(
        f"files with the row id {first_row_id} have only a part of their rows in common; this is "
        "not supported"
    )
