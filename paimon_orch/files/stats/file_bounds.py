"""Decodes the statistics of many files, manifests or partitions to arrays by column.

See docs/format/statistics.md#use-on-read.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import starmap

import numpy as np

from paimon_orch.files.stats.column_bounds import ColumnBounds, encode_null_counts
from paimon_orch.files.stats.file_stats import FileStats, StatsSource, decode_column_stats
from paimon_orch.files.stats.stats_evaluator import BoundsOf
from paimon_orch.format.arrays import Indices
from paimon_orch.format.manifest.file_fields import FileFields
from paimon_orch.format.manifest.manifest_list import ManifestFileMeta
from paimon_orch.format.row.binary_row_columns import read_field_column
from paimon_orch.format.row.simple_stats import SimpleStats
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.data_types import AtomicType


def find_manifest_bounds(manifests: Sequence[ManifestFileMeta], schema: TableSchema) -> BoundsOf:
    """Return the bounds of columns in manifests; only bounds of partition columns are known."""
    fields = schema.partition_fields

    def bounds_of(name: str) -> ColumnBounds:
        index = next((i for i, field in enumerate(fields) if field.name == name), None)
        if index is None:
            return ColumnBounds.unknown()
        arity, data_type = len(fields), fields[index].type
        stats = (
            decode_column_stats(m.partition_stats, index, arity, data_type, m.file_name)
            for m in manifests
        )
        return ColumnBounds.of(list(stats))

    return bounds_of


def find_partition_bounds(partitions: Sequence[bytes], stats: FileStats) -> BoundsOf:
    """Return the bounds of columns in partitions; only bounds of partition columns are known."""

    def bounds_of(name: str) -> ColumnBounds:
        return ColumnBounds.of([stats.get_constant_stats(part)[name] for part in partitions])

    return bounds_of


def group_by_layout(
    files: FileFields, partitions: Sequence[bytes], stats: FileStats
) -> Iterator[tuple[Indices, "FileBounds"]]:
    """Group files by schema and columns with statistics; yield their indices and bounds."""
    columns = zip(files.get("_VALUE_STATS_COLS"), files.get("_WRITE_COLS"), strict=True)
    dense_columns = (written if listed is None else listed for listed, written in columns)
    groups: dict[tuple[int, tuple[str, ...] | None], list[int]] = {}
    for row, layout in enumerate(zip(files.get("_SCHEMA_ID"), dense_columns, strict=True)):
        groups.setdefault(layout, []).append(row)
    for layout, rows in groups.items():
        indices = np.array(rows)
        sources, layout_files = stats.find_stats_sources(*layout), files.take(indices)
        group_partitions = [partitions[row] for row in rows]
        yield indices, FileBounds(stats, sources, layout_files, group_partitions)


class FileBounds:
    """The bounds of columns in files with the same schema and statistics, decoded on first use."""

    def __init__(
        self,
        stats: FileStats,
        sources: Mapping[str, StatsSource | None],
        files: FileFields,
        partitions: Sequence[bytes],
    ) -> None:
        self._stats, self._sources, self._files = stats, sources, files
        self._partitions = partitions
        self._decoded: dict[str, ColumnBounds] = {}

    def __call__(self, name: str) -> ColumnBounds:
        """Return the bounds of a column."""
        if name not in self._decoded:
            self._decoded[name] = self._decode(name)
        return self._decoded[name]

    def _decode(self, name: str) -> ColumnBounds:
        if name in self._stats.partition_keys:
            codes: dict[bytes, int] = {}
            rows = [codes.setdefault(partition, len(codes)) for partition in self._partitions]
            bounds = find_partition_bounds(list(codes), self._stats)(name)
            return bounds.take(np.array(rows, np.int64))
        if name not in self._sources:
            return ColumnBounds.unknown()
        source = self._sources[name]
        if source is None:
            # the column was added after these files were written, so it is null in all rows
            return ColumnBounds.unknown(np.array(self._files.get("_ROW_COUNT"), np.int64))
        return self._decode_file_stats(source)

    def _decode_file_stats(self, source: StatsSource) -> ColumnBounds:
        prefix = "_KEY_STATS" if source.is_key else "_VALUE_STATS"
        lows, highs, null_counts = (
            self._files.get(f"{prefix}.{part}")
            for part in ("_MIN_VALUES", "_MAX_VALUES", "_NULL_COUNTS")
        )
        data_type, index = source.stored_type, source.index
        if isinstance(data_type, AtomicType) and not source.is_cast:
            low = read_field_column(lows, index, source.arity, data_type)
            high = read_field_column(highs, index, source.arity, data_type)
            if low is not None and high is not None:
                counts = _encode_column_counts(null_counts, index)
                return ColumnBounds.from_fields(low, high, counts, data_type)
        stats = map(SimpleStats, lows, highs, null_counts)
        return ColumnBounds.of(
            list(starmap(source.decode_stats, zip(stats, self._files.names, strict=True)))
        )


def _encode_column_counts(
    null_counts: Iterable[Sequence[int | None] | None], index: int
) -> Indices:
    """Return the null counts of one column in all files, as an array."""
    return encode_null_counts(
        [
            None if counts is None or index >= len(counts) else counts[index]
            for counts in null_counts
        ]
    )
