"""Builds the indexes of one data file while its rows are written."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.errors import InputError
from paimon_orch.format.arrays import to_arrow_array, to_numpy
from paimon_orch.format.file_index.bitmap import BitmapIndex, encode_bitmap_index
from paimon_orch.format.file_index.bloom_filter import BloomFilterBuilder, BloomFilterIndex
from paimon_orch.format.file_index.bsi import encode_bit_slice_index
from paimon_orch.format.file_index.container import ByteSource, encode_container
from paimon_orch.format.file_index.index_keys import (
    BITMAP,
    BLOOM_FILTER,
    BSI,
    RANGE_BITMAP,
    EncodedColumn,
    encode_column,
    encode_non_null_keys,
)
from paimon_orch.format.file_index.index_options import (
    BITMAP_INDEX_BLOCK_SIZE,
    BITMAP_VERSION,
    BLOOM_FILTER_FPP,
    BLOOM_FILTER_ITEMS,
    RANGE_BITMAP_CHUNK_SIZE,
    IndexSpec,
    group_by_column,
)
from paimon_orch.format.file_index.range_bitmap import RangeBitmapIndex, encode_range_bitmap_index
from paimon_orch.format.types.data_types import AtomicType, Field

_MAX_CHUNK = 2**31 - 1


@dataclass(slots=True)
class _ColumnIndexBuilder:
    """Builds the indexes of one column; keeps values only for indexes that need all of them."""

    specs: Sequence[IndexSpec]
    data_type: AtomicType
    filters: dict[str, BloomFilterBuilder] = field(default_factory=dict)
    chunks: list[pa.Array] = field(default_factory=list)

    def __post_init__(self) -> None:
        for spec in self.specs:
            if spec.index == BLOOM_FILTER:
                self.filters[spec.index] = BloomFilterBuilder(
                    self.data_type, *_parse_bloom_filter_options(spec)
                )

    def add(self, column: pa.ChunkedArray) -> None:
        for chunk in column.chunks:
            values = chunk
            if self.specs[0].key is not None:
                values = _extract_map_values(chunk, self.specs[0].key)
            for builder in self.filters.values():
                builder.add(encode_non_null_keys(values, self.data_type))
            if len(self.filters) < len(self.specs):
                self.chunks.append(values)

    def finish(self) -> list[tuple[str, bytes]]:
        encoded: EncodedColumn | None = None
        indexes = []
        for spec in self.specs:
            if spec.index == BLOOM_FILTER:
                indexes.append((spec.index, self.filters[spec.index].finish()))
                continue
            if encoded is None:
                # a bitmap index needs the keys in the order of their first rows
                in_order = any(spec.index == BITMAP for spec in self.specs)
                encoded = encode_column(self.chunks, self.data_type, may_sort=not in_order)
            indexes.append((spec.index, _encode_index(spec, encoded, self.data_type)))
        return indexes


def is_built_with(spec: IndexSpec, blob: ByteSource, data_type: AtomicType) -> bool:
    """Return whether the header of a stored index agrees with its options.

    Raises decode errors such as ``ValueError`` for a damaged index.
    """
    if spec.index == BLOOM_FILTER:
        return BloomFilterIndex(blob, data_type).is_built_with(*_parse_bloom_filter_options(spec))
    if spec.index == BITMAP:
        version, block_size = _parse_bitmap_options(spec)
        # an option that is not set allows any version, because Java Paimon 0.9 has only version 1
        any_version = not spec.options.has(BITMAP_VERSION)
        return BitmapIndex(blob, data_type).is_built_with(
            None if any_version else version, block_size
        )
    if spec.index == RANGE_BITMAP:
        return RangeBitmapIndex(blob, data_type).is_built_with(_parse_chunk_size(spec))
    return True


def _parse_bloom_filter_options(spec: IndexSpec) -> tuple[int, float]:
    return spec.options.get(BLOOM_FILTER_ITEMS), spec.options.get(BLOOM_FILTER_FPP)


def _encode_index(spec: IndexSpec, column: EncodedColumn, data_type: AtomicType) -> bytes:
    if spec.index == BITMAP:
        version, block_size = _parse_bitmap_options(spec)
        return encode_bitmap_index(column, data_type, version=version, block_size=block_size)
    if spec.index == BSI:
        return encode_bit_slice_index(column)
    return encode_range_bitmap_index(column, data_type, chunk_size=_parse_chunk_size(spec))


def _parse_bitmap_options(spec: IndexSpec) -> tuple[int, int]:
    return spec.options.get(BITMAP_VERSION), spec.options.get(BITMAP_INDEX_BLOCK_SIZE)


def _parse_chunk_size(spec: IndexSpec) -> int | None:
    size = spec.options.get(RANGE_BITMAP_CHUNK_SIZE)
    return None if size is None else min(size, _MAX_CHUNK)


def _extract_map_values(array: pa.MapArray, key: str) -> pa.Array:
    """Return the value of a key in each map, null if it is absent."""
    offsets = np.asarray(array.offsets, np.int64)
    entries = np.flatnonzero(pc.fill_null(pc.equal(array.keys, key), False))
    # if a map has duplicate keys, the value of the last entry counts
    entries = entries[(entries >= offsets[0]) & (entries < offsets[-1])]
    rows = np.searchsorted(offsets, entries, side="right") - 1
    positions, is_absent = np.zeros(len(array), np.int64), np.ones(len(array), bool)
    positions[rows], is_absent[rows] = entries, False
    if array.null_count:
        is_absent |= to_numpy(array.is_null())
    return array.items.take(to_arrow_array(positions, mask=is_absent))


def _finish_column(name: str, column: _ColumnIndexBuilder) -> list[tuple[str, bytes]]:
    try:
        return column.finish()
    except InputError as error:
        raise InputError(f"column {name!r} cannot be indexed: {error}") from error


class FileIndexBuilder:
    """Builds the index container of a data file from its rows, in their order."""

    def __init__(self, specs: Sequence[IndexSpec], fields: Sequence[Field]) -> None:
        self._rows = 0
        self._columns = [
            (name, _ColumnIndexBuilder(indexes, indexes[0].value_type(fields)))
            for name, indexes in group_by_column(specs)
        ]
        for spec in specs:
            spec.value_type(fields)

    @property
    def columns(self) -> list[str]:
        """Return the columns whose values are needed."""
        return list(dict.fromkeys(column.specs[0].column for _, column in self._columns))

    def add(self, rows: pa.Table) -> None:
        """Add the next rows."""
        self._rows += rows.num_rows
        for _, column in self._columns:
            column.add(rows.column(column.specs[0].column))

    def finish(self) -> bytes:
        """Return the container."""
        indexes: list[tuple[str, list[tuple[str, bytes | None]]]] = []
        for name, column in self._columns:
            if column.specs[0].key is not None and not self._rows:
                indexes.append((name, [(spec.index, None) for spec in column.specs]))
            else:
                indexes.append((name, [*_finish_column(name, column)]))
        return encode_container(indexes)
