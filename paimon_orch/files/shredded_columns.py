"""Finds the stored columns of shredded VARIANT columns that the values at some paths need.

A value is not an object if its typed columns are null, and fields with typed columns are in no
other place, so the other columns need not be read.

See docs/format/variant.md#shredded-columns.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from paimon_orch.files.parquet import ParquetFileReader
from paimon_orch.files.stats.column_bounds import ColumnBounds, convert_footer_stats
from paimon_orch.files.variant_access import parse_path
from paimon_orch.format.row.simple_stats import ColumnStats
from paimon_orch.format.types.arrow import NumberedBatch, to_arrow_type
from paimon_orch.format.types.data_types import AtomicType, DataType, TypeRoot, parse_type
from paimon_orch.format.types.predicate import VariantValue
from paimon_orch.format.variant.shredding import TYPED_VALUE, assemble_partial_variants

_VALUE = "value"
_INTEGERS = {
    pa.int8(): TypeRoot.TINYINT,
    pa.int16(): TypeRoot.SMALLINT,
    pa.int32(): TypeRoot.INT,
    pa.int64(): TypeRoot.BIGINT,
}


@dataclass(frozen=True, slots=True)
class _Node:
    """A shredded value: a group with the columns ``value`` and ``typed_value``."""

    path: str
    """The path of the group in the file, with dots."""
    group: pa.StructType

    def find_type(self, name: str) -> pa.DataType | None:
        """Return the type of a column of the group, or None if there is no such column."""
        index = self.group.get_field_index(name)
        return None if index < 0 else self.group.field(index).type

    def find_child(self, segment: str | int) -> "_Node | None":
        """Return the shredded field of an object, or None if the field has no columns."""
        typed = self.find_type(TYPED_VALUE)
        if not isinstance(segment, str) or not isinstance(typed, pa.StructType):
            return None
        index = typed.get_field_index(segment)
        child = None if index < 0 else typed.field(index).type
        if not isinstance(child, pa.StructType):
            return None
        return _Node(f"{self.path}.{TYPED_VALUE}.{segment}", child)


def find_partial_columns(
    reader: ParquetFileReader, values: Mapping[str, Sequence[VariantValue]]
) -> dict[str, list[str]]:
    """Return what to read of each shredded column; ``values`` are those that are needed of it."""
    partial = {}
    for name, needed_values in values.items():
        group = reader.find_arrow_type(name)
        root = _Node(name, group) if isinstance(group, pa.StructType) else None
        if root is not None and root.find_type(TYPED_VALUE) is not None:
            needed = {_find_needed_column(root, parse_path(v.path)) for v in needed_values}
            if name not in needed:
                partial[name] = [f"{name}.metadata", *sorted(filter(None, needed))]
    return partial


def _find_needed_column(node: _Node, segments: Sequence[str | int]) -> str | None:
    """Return the column or group that has the values at a path, or None if all are missing."""
    for segment in segments:
        if isinstance(segment, int) and pa.types.is_list(node.find_type(TYPED_VALUE) or pa.null()):
            return node.path
        child = node.find_child(segment)
        if child is None:
            return None if node.find_type(_VALUE) is None else f"{node.path}.{_VALUE}"
        node = child
    return node.path


def assemble_partial_columns(
    batches: Iterable[NumberedBatch], names: Iterable[str]
) -> Iterator[NumberedBatch]:
    """Yield the batches with the partially read columns as VARIANT."""
    for numbers, batch in batches:
        rows = batch
        for name in names:
            index = rows.schema.get_field_index(name)
            rows = rows.set_column(index, name, assemble_partial_variants(rows.column(index)))
        yield numbers, rows


def find_variant_bounds(reader: ParquetFileReader, name: str, value: VariantValue) -> ColumnBounds:
    """Return the bounds of a value of a VARIANT column in the row groups of a file.

    Bounds are known if all values of a row group are in a typed column.
    """
    group, node = reader.find_arrow_type(name), None
    if isinstance(group, pa.StructType):
        node = _Node(name, group)
        for segment in parse_path(value.path):
            node = None if node is None else node.find_child(segment)
    if node is None:
        return ColumnBounds.unknown()
    stored_type = _find_bounds_type(node.find_type(TYPED_VALUE), parse_type(value.type))
    if stored_type is None:
        return ColumnBounds.unknown()
    groups = range(reader.num_row_groups)
    return ColumnBounds.of([_convert_stats(reader, group, node, stored_type) for group in groups])


def _find_bounds_type(stored: pa.DataType | None, target: DataType) -> DataType | None:
    """Return the type of a typed column whose order is the order of the values as ``target``."""
    integer = _INTEGERS.get(stored) if stored is not None else None
    if integer is not None and to_arrow_type(target) in _INTEGERS:
        return AtomicType(name=integer)
    return target if stored == to_arrow_type(target) else None


def _convert_stats(
    reader: ParquetFileReader, group: int, node: _Node, data_type: DataType
) -> ColumnStats:
    if node.find_type(_VALUE) is not None:
        others = reader.row_group_statistics(group, f"{node.path}.{_VALUE}")
        rows = reader.row_group_rows(group)
        if others is None or not others.has_null_count or others.null_count != rows:
            return ColumnStats()
    typed = reader.row_group_statistics(group, f"{node.path}.{TYPED_VALUE}")
    return convert_footer_stats(typed, data_type, data_type)
