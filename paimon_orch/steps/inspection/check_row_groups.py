"""Compares the statistics of Parquet row groups with the values of a data file.

Filters skip row groups by these statistics, and compactions copy them.

See docs/format/statistics.md#statistics-of-row-groups.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.errors import InputError
from paimon_orch.files.data_file_reader import BucketFile, FileReader
from paimon_orch.files.parquet import ParquetFileReader
from paimon_orch.files.stats.collector import to_internal_value
from paimon_orch.files.stats.column_bounds import convert_footer_stats
from paimon_orch.format.row.simple_stats import ColumnStats
from paimon_orch.format.schema import KEY_PREFIX
from paimon_orch.format.types.arrow import to_paimon_type
from paimon_orch.format.types.data_types import AtomicType, DataType, Field, VariantType
from paimon_orch.format.variant.shredding import TYPED_VALUE
from paimon_orch.merge.sort.key_order import to_comparable_value

REWRITE = (
    "rewrite it by `compact --strategy full` with the table option "
    "'compaction.force-rewrite-all-files' = true"
)
"""What repairs wrong statistics; other compactions may copy them."""


def find_wrong_row_groups(
    reader: FileReader, bucket_file: BucketFile, fields: Sequence[Field], rows: pa.Table
) -> Iterator[str]:
    """Yield a sentence for each column of a row group whose values its statistics exclude.

    ``fields`` are the columns of ``rows``, which are all rows of the file, in its order.
    """
    with reader.open_parquet(bucket_file) as parquet:
        if parquet is None:
            return
        stored = set(parquet.names)
        columns = [
            (name, each.type, rows[each.name])
            for each in fields
            if isinstance(each.type, AtomicType)
            for name in (each.name, KEY_PREFIX + each.name)
            if name in stored
        ]
        variants = [each.name for each in fields if isinstance(each.type, VariantType)]
        for group in range(parquet.num_row_groups):
            start, end = parquet.row_group_starts[group : group + 2]
            if start == end:
                continue
            values = ((name, kind, column[start:end]) for name, kind, column in columns)
            shredded = _read_shredded_values(parquet, group, stored.intersection(variants))
            for name, kind, column in chain(values, shredded):
                footer = parquet.row_group_statistics(group, name)
                stated = convert_footer_stats(footer, kind, kind)
                actual = find_difference(stated, column, kind)
                if actual is not None:
                    yield (
                        f"column {name} of row group {group} has {actual}, but the footer has "
                        f"{stated}"
                    )


def _read_shredded_values(
    parquet: ParquetFileReader, group: int, names: set[str]
) -> Iterator[tuple[str, DataType, pa.ChunkedArray]]:
    """Yield the path, type and values of the typed columns of VARIANT columns."""
    for name in sorted(names):
        paths = list(_find_leaves([name], parquet.find_arrow_type(name)))
        if not any(TYPED_VALUE in path for path, _ in paths):
            continue
        batches = parquet.batches([name], parquet.row_group_rows(group), [group])
        column = pa.Table.from_batches(batches)[name]
        for path, kind in paths:
            values = column
            for part in path[1:]:
                values = pc.struct_field(values, [values.type.get_field_index(part)])
            yield ".".join(path), kind, values


def _find_leaves(path: list[str], arrow: pa.DataType) -> Iterator[tuple[list[str], DataType]]:
    """Yield the paths and types of the leaf columns that are not in lists.

    Columns of types that the format does not have are omitted: no filter compares their values.
    """
    if isinstance(arrow, pa.StructType):
        for child in arrow:
            yield from _find_leaves([*path, child.name], child.type)
    elif not pa.types.is_nested(arrow):
        try:
            kind = to_paimon_type(arrow)
        except InputError:
            return
        yield path, kind


def find_difference(
    stated: ColumnStats, column: pa.ChunkedArray, column_type: DataType
) -> ColumnStats | None:
    """Return the statistics of a column if the stated ones exclude one of its values, or None.

    NaN is ignored, as it is by the bounds of writers.
    """
    low, high = None, None
    if (stated.min, stated.max) != (None, None) and isinstance(column_type, AtomicType):
        low, high = map(to_internal_value, pc.min_max(column).values())
    actual = ColumnStats(low, high, column.null_count)
    if stated.null_count not in (None, actual.null_count):
        return actual
    lower, upper, minimum, maximum = (
        _to_comparable_bound(value, column_type)
        for value in (stated.min, stated.max, actual.min, actual.max)
    )
    is_too_high = lower is not None and minimum is not None and minimum < lower
    is_too_low = upper is not None and maximum is not None and maximum > upper
    return actual if is_too_high or is_too_low else None


def _to_comparable_bound(value: object, data_type: DataType) -> tuple[bool, object] | None:
    """Return a value that compares, or None; writers use different signs of zero in bounds."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    return to_comparable_value(0.0 if isinstance(value, float) and value == 0 else value, data_type)
