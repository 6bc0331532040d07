"""Rows of data files behind their physical numbers, and of Parquet files no more than the chosen ones ask for."""

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa

from paimon_orch.files.avro_reader import AvroFileReader
from paimon_orch.files.batches import Numbered, numbered
from paimon_orch.files.file_format import DataFileReader
from paimon_orch.files.orc import OrcFileReader
from paimon_orch.files.parquet.page_reader import PageIndexError, RowGroupPages
from paimon_orch.files.parquet.parquet import ParquetFileReader
from paimon_orch.format.deletion_vector import Positions

logger = logging.getLogger(__name__)


def stored_rows(
    opened: DataFileReader, columns: Sequence[str], batch_rows: int, chosen: Positions | None
) -> Iterator[Numbered]:
    """Yield all rows of a file; with ``chosen`` others than these may be left out."""
    if chosen is None or not isinstance(opened, OrcFileReader | AvroFileReader):
        return numbered(0, opened.batches(columns, batch_rows))
    return opened.selected(columns, batch_rows, chosen)


def only(numbers: Positions, batch: pa.RecordBatch, chosen: Positions) -> Numbered:
    """Return the chosen rows of a batch without gaps, or of one that has no others; ``chosen`` is sorted."""
    low, high = np.searchsorted(chosen, (numbers[0], numbers[-1] + 1))
    found = chosen[low:high]
    if len(found) == batch.num_rows:
        return numbers, batch
    return found, batch.take(pa.array(found - numbers[0]))


def parquet_rows(
    opened: ParquetFileReader,
    path: str,
    columns: Sequence[str],
    batch_rows: int,
    groups: Sequence[int],
    chosen: Positions | None,
) -> Iterator[Numbered]:
    """Yield the rows of some row groups; with ``chosen`` others than these may be left out."""
    begins = opened.first_rows
    pages: dict[int, RowGroupPages] = {}
    if chosen is not None:
        inside = rows_inside(opened, groups, chosen)
        groups, pages = list(inside), page_plans(opened, path, columns, inside)
    for stretch in _stretches(groups, pages):
        rows = _rows_of_pages(opened, path, pages[stretch[0]]) if stretch[0] in pages else None
        if rows is None:
            batches = opened.batches(columns, batch_rows, stretch)
            yield from numbered(begins[stretch[0]], batches)
        else:
            at = inside[stretch[0]] + begins[stretch[0]]
            for batch in rows.to_batches(batch_rows):
                yield at[: batch.num_rows], batch
                at = at[batch.num_rows :]


def rows_inside(
    opened: ParquetFileReader, groups: Iterable[int], chosen: Positions
) -> dict[int, Positions]:
    """Return which of the chosen rows lie in row groups, counted from the first row of each; no group has none."""
    begins, found = opened.first_rows, {}
    for group in groups:
        low, high = np.searchsorted(chosen, begins[group : group + 2])
        if low < high:
            found[group] = chosen[low:high] - begins[group]
    return found


def page_plans(
    opened: ParquetFileReader, path: str, columns: Sequence[str], inside: dict[int, Positions]
) -> dict[int, RowGroupPages]:
    """Return which pages to read, by row group; none if the page index of the file at ``path`` is damaged."""
    try:
        return opened.plan_pages(columns, inside)
    except PageIndexError as error:
        _warn(path, str(error))
        return {}


def unread_bytes(opened: DataFileReader, path: str, chosen: Positions) -> int:
    """Return the bytes of an open file at ``path`` that need not be read where all columns of the chosen rows are."""
    if isinstance(opened, OrcFileReader):
        return opened.unread_bytes(chosen)
    if not isinstance(opened, ParquetFileReader):
        return 0
    groups = range(opened.num_row_groups)
    inside = rows_inside(opened, groups, chosen)
    pages = page_plans(opened, path, opened.names, inside)
    whole = [group for group in inside if group not in pages]
    read = sum(plan.bytes for plan in pages.values()) + sum(map(opened.row_group_bytes, whole))
    return sum(map(opened.row_group_bytes, groups)) - read


def _rows_of_pages(opened: ParquetFileReader, path: str, plan: RowGroupPages) -> pa.Table | None:
    try:
        return opened.read_pages(plan).combine_chunks()
    except PageIndexError as error:
        _warn(path, str(error))
        return None


def _stretches(groups: Iterable[int], alone: Collection[int]) -> Iterator[list[int]]:
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
def _warn(path: str, reason: str) -> None:
    """Warn once of a damaged page index."""
    logger.warning(
        "%s: its pages cannot be told apart: %s; whole row groups are read", path, reason
    )
