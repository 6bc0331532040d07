"""Selects the files that may hold the first rows of an order, by their statistics.

See docs/format/file-index-evaluation.md#use-in-reading.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from paimon_orch.files.stats.file_stats import FileStats
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.row.simple_stats import ColumnStats
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.data_types import AtomicType, TypeRoot
from paimon_orch.table.scan.bucket_split import (
    BucketSplit,
    count_visible_rows,
    is_file_raw_convertible,
)
from paimon_orch.table.scan.order_by import SortKey


def select_top_n_splits(
    splits: Sequence[BucketSplit], schema: TableSchema, stats: FileStats, key: SortKey, limit: int
) -> list[BucketSplit]:
    """Return the files that may have one of the first ``limit`` rows in the order of ``key``.

    Leaves out a file if at least ``limit`` rows of other files precede all its values.
    """
    data_type = schema.field(key.column).type
    if not isinstance(data_type, AtomicType) or data_type.name in (TypeRoot.FLOAT, TypeRoot.DOUBLE):
        return list(splits)  # bounds exclude NaN, which sorts first or last
    stats_by_file = {
        file.file_name: stats.of(split.partition, file)(key.column)
        for split in splits
        for file in split.files
    }
    bound = _find_bound(splits, schema, stats_by_file=stats_by_file, key=key, limit=limit)

    def is_needed(split: BucketSplit, file: DataFileMeta) -> bool:
        column = stats_by_file[file.file_name]
        best = column.max if key.descending else column.min
        if bound is None or best is None or not is_file_raw_convertible(split.files, file, schema):
            return True
        if key.nulls_first and column.null_count != 0:
            return True
        return bool(best >= bound if key.descending else best <= bound)

    selected = (
        replace(split, files=tuple(file for file in split.files if is_needed(split, file)))
        for split in splits
    )
    return [split for split in selected if split.files]


def _find_bound(
    splits: Sequence[BucketSplit],
    schema: TableSchema,
    stats_by_file: dict[str, ColumnStats],
    key: SortKey,
    limit: int,
) -> Any:
    """Return a value that at least ``limit`` rows precede or equal, or None if it is unknown."""
    worst = sorted(
        _list_worst_values(splits, schema, stats_by_file, key),
        key=lambda item: item[0],
        reverse=key.descending,
    )
    remaining = limit
    for value, rows in worst:
        remaining -= rows
        if remaining <= 0:
            return value
    return None


def _list_worst_values(
    splits: Sequence[BucketSplit],
    schema: TableSchema,
    stats_by_file: dict[str, ColumnStats],
    key: SortKey,
) -> Iterator[tuple[Any, int]]:
    """Yield the last possible value of each file in order, and its number of non-null rows."""
    for split in splits:
        for file in split.files:
            column = stats_by_file[file.file_name]
            worst = column.min if key.descending else column.max
            rows = count_visible_rows(replace(split, files=(file,)), schema)
            if worst is None or rows is None or column.null_count is None:
                continue
            if is_file_raw_convertible(split.files, file, schema) and rows > column.null_count:
                yield worst, rows - column.null_count
