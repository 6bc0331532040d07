"""The statistics of single row groups, as part of the statistics of a file with more rows.

See docs/format/statistics.md#statistics-of-copied-row-groups.
"""

from collections.abc import Callable, Collection, Iterable, Sequence

import pyarrow as pa

from paimon_orch.files.parquet import RowGroupSource
from paimon_orch.files.stats.collector import StatsCollector
from paimon_orch.files.stats.column_bounds import convert_footer_stats
from paimon_orch.files.stats.stored_stats import StoredStatsDecoder
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.row.simple_stats import UNKNOWN_STATS, ColumnStats
from paimon_orch.format.row.stats_mode import StatsMode, has_bounds
from paimon_orch.format.types.data_types import AtomicType, Field, TypeRoot

_NO_STATS = StatsMode(bounds=False, counts=False)


ReadColumns = Callable[[Sequence[Field]], Iterable[pa.RecordBatch]]


class RowGroupStatsDecoder:
    """Returns the statistics of row groups of files with the columns of a table."""

    def __init__(self, fields: Sequence[Field], modes: Sequence[StatsMode]) -> None:
        """Return what ``modes`` need; statistics of nested columns are unknown."""
        self._columns = [
            (field, mode if isinstance(field.type, AtomicType) else _NO_STATS)
            for field, mode in zip(fields, modes, strict=True)
        ]
        self._floats = [
            field.name for field, mode in self._columns if mode.bounds and _is_float(field)
        ]
        # FLOAT and DOUBLE columns of a file without NaN have bounds in its manifest entry
        self._stored = StoredStatsDecoder(
            fields,
            [mode if field.name in self._floats else _NO_STATS for field, mode in self._columns],
        )

    def decode(
        self, file: DataFileMeta, source: RowGroupSource, number: int, read: ReadColumns
    ) -> list[ColumnStats]:
        """Return the statistics of all columns of one row group.

        ``read`` returns the columns whose statistics are not in the footer, or that may have NaN.
        """
        may_have_nan = self._find_columns_with_nan(file)
        known, unknown = dict[str, ColumnStats](), list[Field]()
        for field, mode in self._columns:
            stats: ColumnStats | None = UNKNOWN_STATS
            if mode.counts or mode.bounds:
                stats = decode_column_stats(field, source, number, bounds=mode.bounds)
            if stats is None or (field.name in may_have_nan and stats.min is not None):
                unknown.append(field)
            else:
                known[field.name] = stats
        if unknown:
            collector = StatsCollector(unknown)
            for batch in read(unknown):
                collector.update(pa.Table.from_batches([batch]))
            known |= {field.name: collector.column(field.name) for field in unknown}
        return [known[field.name] for field, _ in self._columns]

    def _find_columns_with_nan(self, file: DataFileMeta) -> Collection[str]:
        """Return the columns that may have NaN, which Parquet's bounds ignore."""
        if not self._floats:
            return ()
        stored = self._stored.decode(file)
        if stored is None:
            return self._floats
        columns = zip(self._columns, stored, strict=True)
        return [field.name for (field, _), stats in columns if stats.min is None]


def decode_column_stats(
    field: Field, source: RowGroupSource, number: int, *, bounds: bool = True
) -> ColumnStats | None:
    """Return the statistics of a column of a row group, or None if they are not complete.

    A column with NaN may have bounds.
    """
    leaf, rows = source.find_leaf(field.name), source.groups[number].rows
    if not source.groups[number].chunks[leaf].has_exact_bounds:
        return None
    footer = source.footer.column(number, leaf).statistics
    stats = convert_footer_stats(footer, field.type, field.type)
    if stats.null_count is None or not 0 <= stats.null_count <= rows:
        return None
    if not bounds or not has_bounds(field.type) or stats.null_count == rows:
        return ColumnStats(None, None, stats.null_count)
    return None if stats.min is None or stats.max is None else stats


def _is_float(field: Field) -> bool:
    return isinstance(field.type, AtomicType) and field.type.name in (
        TypeRoot.FLOAT,
        TypeRoot.DOUBLE,
    )
