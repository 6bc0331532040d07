"""Compares the lists that Arrow reads with the entries that their pages have.

Levels state where a list begins. If damaged levels state another number of lists than the row group
has rows, Arrow gives the rest to the next row group or drops it, and rows get the items of others.

See docs/format/data-files.md#parquet.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from paimon_orch.format.arrays import to_numpy


def check_list_entries(
    batches: Iterable[pa.RecordBatch], expected_rows: int, expected: int
) -> Iterator[pa.RecordBatch]:
    """Yield all rows of a row group, whose lists must have ``expected`` entries.

    Raises ``ValueError`` at the end for other numbers.
    """
    rows = entries = 0
    for batch in batches:
        rows += batch.num_rows
        entries += sum(map(count_list_entries, batch.columns))
        yield batch
    if rows != expected_rows:
        raise ValueError(f"a row group of {expected_rows} rows has {rows} lists")
    compare_list_entries(entries, expected)


def compare_list_entries(entries: int, expected: int) -> None:
    """Raise ``ValueError`` if the lists of a row group have another number of entries."""
    if entries != expected:
        raise ValueError(
            f"the lists of a row group have {entries} items and empty lists, but its pages have "
            f"{expected}"
        )


def count_list_entries(array: pa.Array) -> int:
    """Return the number of entries in the leaf columns of lists; an empty list is an entry."""
    return sum(_count_entries(array, is_item=False))


def _count_entries(array: pa.Array, *, is_item: bool) -> list[int]:
    """Return the number of entries of each leaf column that is in a list."""
    if isinstance(array, pa.ExtensionArray):  # such as a tensor
        return _count_entries(array.storage, is_item=is_item)
    if isinstance(array, pa.StructArray):
        children = array.flatten()
        return [n for child in children for n in _count_entries(child, is_item=is_item)]
    if isinstance(array, pa.FixedSizeListArray):
        empty, items = array.null_count, array.flatten()
    elif isinstance(array, pa.ListViewArray | pa.LargeListViewArray):
        empty, items = int(np.count_nonzero(to_numpy(array.sizes) == 0)), array.flatten()
    elif isinstance(array, pa.ListArray | pa.LargeListArray):  # a MapArray is a ListArray
        offsets = to_numpy(array.offsets)
        empty = int(np.count_nonzero(offsets[1:] == offsets[:-1]))
        items = array.values.slice(offsets[0], offsets[-1] - offsets[0])
    else:
        return [len(array)] if is_item else []
    return [empty + entries for entries in _count_entries(items, is_item=True)]
