"""Reads rows of data files with their positions.

If rows are selected, only the row groups, pages, stripes or blocks that contain them are read.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa

from paimon_orch.files.avro_reader import AvroFileReader
from paimon_orch.files.file_format import FormatReader
from paimon_orch.files.orc import OrcFileReader
from paimon_orch.files.parquet import PageIndexError, ParquetFileReader, RowGroupPages
from paimon_orch.format.arrays import Positions, to_arrow_array
from paimon_orch.format.types.arrow import NumberedBatch, number_batches
from paimon_orch.safe_text import get_logger

logger = get_logger(__name__)


def read_file_rows(
    reader: FormatReader, columns: Sequence[str], batch_rows: int, selected: Positions | None
) -> Iterator[NumberedBatch]:
    """Yield all rows of a file; with ``selected`` other rows may be omitted."""
    if selected is None or not isinstance(reader, OrcFileReader | AvroFileReader):
        return number_batches(0, reader.batches(columns, batch_rows))
    return reader.read_selected(columns, batch_rows, selected)


def take_selected_rows(
    numbers: Positions, batch: pa.RecordBatch, selected: Positions
) -> NumberedBatch:
    """Return the selected rows of a batch of consecutive rows.

    A batch in which all rows are selected is returned unchanged.
    """
    low, high = np.searchsorted(selected, (numbers[0], numbers[-1] + 1))
    positions = selected[low:high]
    if len(positions) == batch.num_rows:
        return numbers, batch
    return positions, batch.take(to_arrow_array(positions - numbers[0]))


def read_parquet_rows(
    reader: ParquetFileReader,
    path: str,
    columns: Sequence[str],
    batch_rows: int,
    groups: Sequence[int],
    selected: Positions | None,
) -> Iterator[NumberedBatch]:
    """Yield the rows of some row groups; with ``selected`` other rows may be omitted."""
    begins = reader.row_group_starts
    pages: dict[int, RowGroupPages] = {}
    if selected is not None:
        rows_by_group = split_by_row_group(reader, groups, selected)
        groups, pages = list(rows_by_group), plan_page_reads(reader, path, columns, rows_by_group)
    for run in _group_adjacent_row_groups(groups, pages):
        rows = _read_pages(reader, path, pages[run[0]]) if run[0] in pages else None
        if rows is None:
            batches = reader.batches(columns, batch_rows, run)
            yield from number_batches(begins[run[0]], batches)
        else:
            positions = rows_by_group[run[0]] + begins[run[0]]
            for batch in rows.to_batches(batch_rows):
                yield positions[: batch.num_rows], batch
                positions = positions[batch.num_rows :]


def split_by_row_group(
    reader: ParquetFileReader, groups: Iterable[int], selected: Positions
) -> dict[int, Positions]:
    """Return the positions of selected rows within each row group that has any."""
    begins, rows_by_group = reader.row_group_starts, {}
    for group in groups:
        low, high = np.searchsorted(selected, begins[group : group + 2])
        if low < high:
            rows_by_group[group] = selected[low:high] - begins[group]
    return rows_by_group


def plan_page_reads(
    reader: ParquetFileReader,
    path: str,
    columns: Sequence[str],
    rows_by_group: dict[int, Positions],
) -> dict[int, RowGroupPages]:
    """Return the pages to read by row group.

    The result is empty if the page index of the file at ``path`` is damaged.
    """
    try:
        return reader.plan_pages(columns, rows_by_group)
    except PageIndexError as error:
        _warn_damaged_page_index(path, str(error))
        return {}


def count_unread_bytes(reader: FormatReader, path: str, selected: Positions) -> int:
    """Return the number of bytes that a read of all columns of the selected rows skips."""
    if isinstance(reader, OrcFileReader):
        return reader.count_unread_bytes(selected)
    if not isinstance(reader, ParquetFileReader):
        return 0
    groups = range(reader.num_row_groups)
    rows_by_group = split_by_row_group(reader, groups, selected)
    pages = plan_page_reads(reader, path, reader.names, rows_by_group)
    unpaged_groups = [group for group in rows_by_group if group not in pages]
    read_bytes = sum(plan.bytes for plan in pages.values()) + sum(
        map(reader.row_group_bytes, unpaged_groups)
    )
    return sum(map(reader.row_group_bytes, groups)) - read_bytes


def _read_pages(reader: ParquetFileReader, path: str, plan: RowGroupPages) -> pa.Table | None:
    try:
        return reader.read_pages(plan).combine_chunks()
    except PageIndexError as error:
        _warn_damaged_page_index(path, str(error))
        return None


def _group_adjacent_row_groups(
    groups: Iterable[int], separate: Collection[int]
) -> Iterator[list[int]]:
    """Yield runs of adjacent row groups; each row group in ``separate`` is a run of its own."""
    run = list[int]()
    for group in groups:
        if run and (group != run[-1] + 1 or group in separate or run[-1] in separate):
            yield run
            run = []
        run.append(group)
    if run:
        yield run


@lru_cache(maxsize=4096)
def _warn_damaged_page_index(path: str, reason: str) -> None:
    """Log a warning about a damaged page index, once per file."""
    logger.warning("%s: the page index cannot be used: %s; whole row groups are read", path, reason)
