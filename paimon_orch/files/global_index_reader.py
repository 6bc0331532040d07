"""Finds the rows that may match in btree and bitmap index files.

A damaged or missing index file, or one of an unknown version, is ignored with a warning: the rows
that it covers are read as if they had no index.

See docs/format/global-index-files.md.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Protocol

import numpy as np

from paimon_orch.decode_limits import measure_stored_bytes
from paimon_orch.errors import CorruptFileError, UnsupportedError, wrap_decode_errors
from paimon_orch.format.arrays import Positions
from paimon_orch.format.file_index.container import ByteSource
from paimon_orch.format.global_index.bitmap_reader import BitmapReader
from paimon_orch.format.global_index.btree_reader import BTreeReader
from paimon_orch.format.global_index.key_ranges import KeyRange, KeySelection, decode_key
from paimon_orch.format.global_index.sorted_column import SortedColumn, decode_key_bounds
from paimon_orch.format.manifest.index_manifest import GlobalIndexMeta, IndexManifestEntry
from paimon_orch.format.types.data_types import AtomicType
from paimon_orch.safe_text import get_logger
from paimon_orch.storage import FileIO

logger = get_logger(__name__)

_MAX_COMPLEMENT = 20_000_000  # the rows with a value of a larger file are not listed
_WHOLE_FILE_BYTES = 256 << 10  # smaller files are read with one request


class SortedIndexReader(Protocol):
    """An index of one column."""

    def find_rows(self, ranges: tuple[KeyRange, ...]) -> Positions | None:
        """Return the ascending positions of rows with some keys; None for all rows."""
        ...

    def find_null_rows(self) -> Positions:
        """Return the ascending positions of rows without a value."""
        ...

    def read_column(self) -> SortedColumn:
        """Return the whole content of the file."""
        ...


_READERS: Mapping[str, Callable[[ByteSource, AtomicType, int], SortedIndexReader]] = {
    "btree": BTreeReader,
    "bitmap": BitmapReader,
}
SORTED_INDEX_TYPES = frozenset(_READERS)


@contextmanager
def open_global_index(
    io: FileIO, path: str, entry: IndexManifestEntry, data_type: AtomicType
) -> Iterator[SortedIndexReader]:
    """Yield the reader of an index file.

    Damage raises :class:`CorruptFileError`, also while the index is used. Raises
    :class:`UnsupportedError` for an unknown version.
    """
    meta = entry.global_index
    assert meta is not None
    with wrap_decode_errors(path), io.open_input(path, entry.file_size) as source:
        size = entry.file_size

        def read(position: int, count: int) -> bytes:
            source.seek(position)
            return source.read(count)

        stored = measure_stored_bytes(source, size)
        content = ByteSource(read, size, stored_bytes=stored)
        if size <= _WHOLE_FILE_BYTES:
            content = ByteSource.of(content.bytes())
        rows = meta.row_range_end - meta.row_range_start + 1
        yield _READERS[entry.index_type](content, data_type, rows)


def find_index_rows(
    io: FileIO,
    path: str,
    entry: IndexManifestEntry,
    data_type: AtomicType,
    selection: KeySelection,
) -> Positions | None:
    """Return the ascending positions of the rows that may match; None for all rows."""
    meta = entry.global_index
    assert meta is not None
    try:
        with wrap_decode_errors(path):
            remaining = _restrict_to_bounds(meta, data_type, selection)
        if not remaining.ranges and not remaining.nulls:
            return np.empty(0, np.int64)
        with open_global_index(io, path, entry, data_type) as index:
            if remaining.nulls:
                return index.find_null_rows()
            if KeyRange() not in remaining.ranges:
                return index.find_rows(remaining.ranges)
            rows = meta.row_range_end - meta.row_range_start + 1
            if rows > _MAX_COMPLEMENT:
                return None
            return np.setdiff1d(np.arange(rows), index.find_null_rows(), assume_unique=True)
    except (CorruptFileError, UnsupportedError) as damage:
        _warn_unusable_index(str(damage))
        return None


def _restrict_to_bounds(
    meta: GlobalIndexMeta, data_type: AtomicType, selection: KeySelection
) -> KeySelection:
    """Return the part of a selection that the bounds of an index file allow."""
    if meta.index_meta is None:
        return selection
    bounds = decode_key_bounds(meta.index_meta)
    if selection.nulls:
        return KeySelection(nulls=bounds.has_nulls)
    if bounds.first is None or bounds.last is None:
        return KeySelection()
    first, last = decode_key(bounds.first, data_type), decode_key(bounds.last, data_type)
    return KeySelection(tuple(keys for keys in selection.ranges if keys.overlaps(first, last)))


@lru_cache(maxsize=4096)
def _warn_unusable_index(reason: str) -> None:
    """Log a warning about an index, once per file."""
    logger.warning("%s; its rows are read without the index", reason)
