"""The stored statistics of a file, as part of the statistics of a file with more rows.

See docs/format/statistics.md#statistics-of-copied-row-groups.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.row.binary_row import deserialize_row, read_row_arity
from paimon_orch.format.row.simple_stats import UNKNOWN_STATS, ColumnStats
from paimon_orch.format.row.stats_mode import StatsMode, has_bounds
from paimon_orch.format.row.trusted_bounds import drop_untrusted_bounds
from paimon_orch.format.text import RawText
from paimon_orch.format.types.data_types import AtomicType, Field, TypeRoot

_UNKNOWN_VALUES = (None, None, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _NeededStats:
    """What the statistics mode of a column stores."""

    field: Field
    counts: bool
    bounds: bool
    is_float: bool
    is_text: bool

    @classmethod
    def of(cls, field: Field, mode: StatsMode) -> "_NeededStats":
        root = field.type.name if isinstance(field.type, AtomicType) else None
        stores_any = root is not None and (mode.bounds or mode.counts)
        return cls(
            field=field,
            counts=stores_any,
            bounds=stores_any and mode.bounds and has_bounds(field.type),
            is_float=root in (TypeRoot.FLOAT, TypeRoot.DOUBLE),
            is_text=root in (TypeRoot.CHAR, TypeRoot.VARCHAR),
        )

    def convert(self, low: object, high: object, count: object, rows: int) -> ColumnStats | None:
        """Return the statistics, or None if less is known than the mode stores."""
        if not self.counts:
            return UNKNOWN_STATS
        if not isinstance(count, int) or not 0 <= count <= rows:
            return None
        if not self.bounds or count == rows:
            return ColumnStats(None, None, count)
        stats = ColumnStats(low, high, count)
        if self.is_float or self.is_text:
            stats = drop_untrusted_bounds(stats, is_orc=False, data_type=self.field.type)
        if stats.min is None and stats.max is None:
            # columns with NaN have no bounds; other columns should have some
            return stats if self.is_float else None
        if stats.min is None or stats.max is None:
            return None
        return None if isinstance(low, RawText) or isinstance(high, RawText) else stats


class StoredStatsDecoder:
    """Decodes the value statistics of files of one schema."""

    def __init__(self, fields: Sequence[Field], modes: Sequence[StatsMode]) -> None:
        self._needed = [
            _NeededStats.of(field, mode) for field, mode in zip(fields, modes, strict=True)
        ]
        self._fields = {field.name: field for field in fields}

    def decode(self, file: DataFileMeta) -> list[ColumnStats] | None:
        """Return the statistics of all columns of a file.

        Returns None if less is known of a column than its mode stores, so that the rows must be
        read.
        """
        names = tuple(self._fields) if file.value_stats_cols is None else file.value_stats_cols
        stats, counts = file.value_stats, file.value_stats.null_counts
        if not self._fields.keys() >= set(names) or counts is None or len(counts) != len(names):
            return None
        types = [self._fields[name].type for name in names]
        try:
            if (
                not read_row_arity(stats.min_values)
                == read_row_arity(stats.max_values)
                == len(names)
            ):
                return None
            lows = deserialize_row(stats.min_values, types)
            highs = deserialize_row(stats.max_values, types)
        except Exception:  # noqa: BLE001 - damaged statistics are not needed to read the rows
            return None
        values = dict(zip(names, zip(lows, highs, counts, strict=True), strict=True))
        decoded = []
        for needed in self._needed:
            low, high, count = values.get(needed.field.name, _UNKNOWN_VALUES)
            column = needed.convert(low, high, count, file.row_count)
            if column is None:
                return None
            decoded.append(column)
        return decoded
