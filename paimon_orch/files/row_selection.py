"""Rows of data files behind their physical numbers, and of Parquet files no more than the chosen ones ask for."""

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa

from paimon_orch.files.avro_reader import AvroFileReader
from paimon_orch.files.file_format import FormatReader
from paimon_orch.files.orc import OrcFileReader
from paimon_orch.files.parquet.page_reader import PageIndexError, RowGroupPages
from paimon_orch.files.parquet.parquet import ParquetFileReader
from paimon_orch.format.arrays import Positions
from paimon_orch.format.types.arrow import NumberedBatch, number_batches

logger = logging.getLogger(__name__)


def read_file_rows(
    opened: FormatReader, columns: Sequence[str], batch_rows: int, chosen: Positions | None
) -> Iterator[NumberedBatch]:
    """Yield all rows of a file; with ``chosen`` others than these may be left out."""
    if chosen is None or not isinstance(opened, OrcFileReader | AvroFileReader):
        return number_batches(0, opened.batches(columns, batch_rows))
    return opened.read_selected(columns, batch_rows, chosen)


def take_selected_rows(
    numbers: Positions, batch: pa.RecordBatch, chosen: Positions
) -> NumberedBatch:
    """Return the chosen rows of a batch without gaps, or of one that has no others; ``chosen`` is sorted."""
    low, high = np.searchsorted(chosen, (numbers[0], numbers[-1] + 1))
    found = chosen[low:high]
    if len(found) == batch.num_rows:
        return numbers, batch
    return found, batch.take(pa.array(found - numbers[0]))


def read_parquet_rows(
    opened: ParquetFileReader,
    path: str,
    columns: Sequence[str],
    batch_rows: int,
    groups: Sequence[int],
    chosen: Positions | None,
) -> Iterator[NumberedBatch]:
    """Yield the rows of some row groups; with ``chosen`` others than these may be left out."""
    begins = opened.row_group_starts
    pages: dict[int, RowGroupPages] = {}
    if chosen is not None:
        inside = split_by_row_group(opened, groups, chosen)
        groups, pages = list(inside), plan_page_reads(opened, path, columns, inside)
    for stretch in _group_adjacent_row_groups(groups, pages):
        rows = _read_pages(opened, path, pages[stretch[0]]) if stretch[0] in pages else None
        if rows is None:
            batches = opened.batches(columns, batch_rows, stretch)
            yield from number_batches(begins[stretch[0]], batches)
        else:
            at = inside[stretch[0]] + begins[stretch[0]]
            for batch in rows.to_batches(batch_rows):
                yield at[: batch.num_rows], batch
                at = at[batch.num_rows :]


def split_by_row_group(
    opened: ParquetFileReader, groups: Iterable[int], chosen: Positions
) -> dict[int, Positions]:
    """Return which of the chosen rows lie in row groups, counted from the first row of each; no group has none."""
    begins, found = opened.row_group_starts, {}
    for group in groups:
        low, high = np.searchsorted(chosen, begins[group : group + 2])
        if low < high:
            found[group] = chosen[low:high] - begins[group]
    return found


def plan_page_reads(
    opened: ParquetFileReader, path: str, columns: Sequence[str], inside: dict[int, Positions]
) -> dict[int, RowGroupPages]:
    """Return which pages to read, by row group; none if the page index of the file at ``path`` is damaged."""
    try:
        return opened.plan_pages(columns, inside)
    except PageIndexError as error:
        _warn_damaged_page_index(path, str(error))
        return {}


def count_unread_bytes(opened: FormatReader, path: str, chosen: Positions) -> int:
    """Return the bytes of an open file at ``path`` that need not be read where all columns of the chosen rows are."""
    if isinstance(opened, OrcFileReader):
        return opened.count_unread_bytes(chosen)
    if not isinstance(opened, ParquetFileReader):
        return 0
    groups = range(opened.num_row_groups)
    inside = split_by_row_group(opened, groups, chosen)
    pages = plan_page_reads(opened, path, opened.names, inside)
    whole = [group for group in inside if group not in pages]
    read = sum(plan.bytes for plan in pages.values()) + sum(map(opened.row_group_bytes, whole))
    return sum(map(opened.row_group_bytes, groups)) - read


def _read_pages(opened: ParquetFileReader, path: str, plan: RowGroupPages) -> pa.Table | None:
    try:
        return opened.read_pages(plan).combine_chunks()
    except PageIndexError as error:
        _warn_damaged_page_index(path, str(error))
        return None


def _group_adjacent_row_groups(
    groups: Iterable[int], alone: Collection[int]
) -> Iterator[list[int]]:
    """Yield row groups that follow each other together, some of them alone."""
    stretch = list[int]()
    for group in groups:
        if stretch and (group != stretch[-1] + 1 or group in alone or stretch[-1] in alone):
            yield stretch
            stretch = []
        stretch.append(group)
    if stretch:
        yield stretch


@lru_cache(maxsize=4096)
def _warn_damaged_page_index(path: str, reason: str) -> None:
    """Warn once of a damaged page index."""
    logger.warning(
        "%s: its pages cannot be told apart: %s; whole row groups are read", path, reason
    )
