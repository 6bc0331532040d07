"""Finds buckets that may have overlapping files on a level, by columns of key bounds."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.format.arrays import AnyArray, Indices
from paimon_orch.format.row.binary_row_columns import read_field_column
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.data_types import AtomicType, TypeRoot

_OTHER_ORDER = (TypeRoot.FLOAT, TypeRoot.DOUBLE)  # the order of NaN and -0.0 differs


def find_suspect_groups(
    table: pa.Table, rows: Indices, groups: Indices, schema: TableSchema
) -> Indices:
    """Return the buckets that may have overlapping files on a level, or damaged keys.

    If this type of key cannot be compared as columns, returns all buckets.
    """
    if not len(rows):
        return np.zeros(0, np.int64)
    low, high = (
        _read_key_columns(table[name].take(pa.array(rows)).to_pylist(), schema)
        for name in ("min_key", "max_key")
    )
    columns = None if low is None or high is None else _to_comparable_numbers(low, high)
    distinct: Indices = np.unique(groups[rows])
    if columns is None:
        return distinct
    starts, ends = columns
    levels, row_groups = table["level"].to_numpy()[rows], groups[rows]
    order = np.lexsort((*starts[::-1], levels, row_groups))
    is_same_run = (np.diff(row_groups[order]) == 0) & (np.diff(levels[order]) == 0)
    is_overlap, is_equal = np.zeros(len(rows) - 1, bool), np.ones(len(rows) - 1, bool)
    for start, end in zip(starts, ends, strict=True):
        before, after = end[order][:-1], start[order][1:]
        is_overlap |= is_equal & (before > after)
        is_equal &= before == after
    suspects: Indices = np.unique(row_groups[order][:-1][is_same_run & (is_overlap | is_equal)])
    return suspects


def _read_key_columns(rows: list[bytes], schema: TableSchema) -> list[Any] | None:
    fields = schema.key_fields
    columns = [
        None
        if isinstance(field.type, AtomicType) and field.type.name in _OTHER_ORDER
        else read_field_column(rows, index, len(fields), field.type)
        for index, field in enumerate(fields)
    ]
    if any(column is None or not column.rows.all() for column in columns):
        return None
    return columns


def _to_comparable_numbers(
    mins: list[Any], maxs: list[Any]
) -> tuple[list[AnyArray], list[AnyArray]] | None:
    """Return the columns of two sets of keys as numbers in the order of keys; nulls are first."""
    starts: list[AnyArray] = []
    ends: list[AnyArray] = []
    for low, high in zip(mins, maxs, strict=True):
        valid = np.concatenate([low.valid, high.valid])
        values = np.concatenate([low.values, high.values])
        if values.dtype == object:
            try:
                encoded = pa.array(values, pa.string(), mask=~valid).dictionary_encode()
            except (UnicodeEncodeError, pa.ArrowException):
                return None
            ranks = np.empty(len(encoded.dictionary) + 1, np.int64)
            ranks[pc.array_sort_indices(encoded.dictionary).to_numpy()] = np.arange(
                len(encoded.dictionary)
            )
            values = ranks[encoded.indices.fill_null(len(encoded.dictionary)).to_numpy()]
        for column in (valid.astype(np.int8), np.where(valid, values, 0)):
            starts.append(column[: len(low.valid)])
            ends.append(column[len(low.valid) :])
    return starts, ends
