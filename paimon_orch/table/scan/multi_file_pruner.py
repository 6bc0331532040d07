"""What a filter lets a scan leave out, for all files of a manifest at once: by statistics and embedded indexes.

The same judgements as those of :mod:`paimon_orch.table.scan.file_pruner`, a column a step, and before objects are made of files.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from paimon_orch.files.file_index_reader import FileIndexEvaluator
from paimon_orch.files.stats.multi_file_evaluator import (
    ColumnBounds,
    encode_null_counts,
    may_match_many,
)
from paimon_orch.format.arrays import Indices, Mask
from paimon_orch.format.manifest.file_fields import FileFields
from paimon_orch.format.row.binary_row_columns import read_field_column
from paimon_orch.format.row.simple_stats import SimpleStats
from paimon_orch.format.types.data_types import AtomicType
from paimon_orch.format.types.predicate import Predicate
from paimon_orch.table.scan.file_stats import FileStats, StatsSource

_BATCH_SIZE = 8_192  # files whose statistics and indexes are in memory at a time


@dataclass(frozen=True)
class FileBatchPruner:
    """Judges many files of one table by a bound predicate; without ``indexed`` by their statistics alone."""

    predicate: Predicate
    stats: FileStats
    indexed: FileIndexEvaluator | None

    def may_match(self, files: FileFields, partitions: Sequence[bytes]) -> Mask:
        """Tell which files, each of a partition, may have matching rows."""
        found = [np.zeros(0, bool)]
        for start in range(0, len(partitions), _BATCH_SIZE):
            lanes = np.arange(start, min(start + _BATCH_SIZE, len(partitions)))
            found.append(self._judged(files.take(lanes), partitions[start : start + _BATCH_SIZE]))
        return np.concatenate(found)

    def _judged(self, files: FileFields, partitions: Sequence[bytes]) -> Mask:
        rows = np.array(files.get("_ROW_COUNT"), np.int64)
        found = np.zeros(len(rows), bool)
        for at, lanes in _group_by_layout(files):
            chosen, parts = files.take(lanes), [partitions[lane] for lane in lanes.tolist()]
            bounds = _BoundsDecoder(
                self.stats,
                self.stats.find_stats_sources(*at),
                files=chosen,
                partitions=parts,
                rows=rows[lanes],
            )
            found[lanes] = may_match_many(self.predicate, bounds, rows[lanes])
        if self.indexed is not None:
            left = np.flatnonzero(found)
            found[left[self.indexed.find_excluded_files(files.take(left))]] = False
        return found


def _item_or_none(values: Sequence[int | None] | None, index: int) -> int | None:
    return None if values is None or index >= len(values) else values[index]


_StatsLayout = tuple[int, tuple[str, ...] | None]


def _group_by_layout(files: FileFields) -> "list[tuple[_StatsLayout, Indices]]":
    """Group files by their schema and the columns that they have statistics of."""
    dense = (
        written if listed is None else listed
        for listed, written in zip(
            files.get("_VALUE_STATS_COLS"), files.get("_WRITE_COLS"), strict=True
        )
    )
    groups: dict[_StatsLayout, list[int]] = {}
    for lane, at in enumerate(zip(files.get("_SCHEMA_ID"), dense, strict=True)):
        groups.setdefault(at, []).append(lane)
    return [(at, np.array(lanes)) for at, lanes in groups.items()]


class _BoundsDecoder:
    """The bounds of columns in files of one shape, decoded when they are asked for."""

    def __init__(
        self,
        stats: FileStats,
        sources: Mapping[str, StatsSource | None],
        files: FileFields,
        partitions: Sequence[bytes],
        rows: Indices,
    ) -> None:
        self._stats, self._sources, self._files = stats, sources, files
        self._partitions, self._rows = partitions, rows
        self._known: dict[str, ColumnBounds] = {}

    def __call__(self, name: str) -> ColumnBounds:
        if name not in self._known:
            self._known[name] = self._bounds(name)
        return self._known[name]

    def _bounds(self, name: str) -> ColumnBounds:
        if name in self._stats.partition_keys:
            return self._build_constant_bounds(name)
        if name not in self._sources:
            return ColumnBounds.unknown()
        source = self._sources[name]
        return ColumnBounds.unknown(self._rows) if source is None else self._stored(source)

    def _build_constant_bounds(self, name: str) -> ColumnBounds:
        numbers: dict[bytes, int] = {}
        codes = [numbers.setdefault(part, len(numbers)) for part in self._partitions]
        each = ColumnBounds.of([self._stats.get_constant_stats(part)[name] for part in numbers])
        return each.take(np.array(codes, np.int64))

    def _stored(self, source: StatsSource) -> ColumnBounds:
        prefix = "_KEY_STATS" if source.is_key else "_VALUE_STATS"
        lows, highs, nulls = (
            self._files.get(f"{prefix}.{part}")
            for part in ("_MIN_VALUES", "_MAX_VALUES", "_NULL_COUNTS")
        )
        data_type, index = source.stored_type, source.index
        if isinstance(data_type, AtomicType) and not source.is_cast:
            low = read_field_column(lows, index, source.arity, data_type)
            high = read_field_column(highs, index, source.arity, data_type)
            if low is not None and high is not None:
                numbers = encode_null_counts([_item_or_none(of_file, index) for of_file in nulls])
                return ColumnBounds.from_fields(low, high, numbers, data_type)
        stats = map(SimpleStats, lows, highs, nulls)
        names = self._files.names
        return ColumnBounds.of(
            [source.decode_stats(s, name) for s, name in zip(stats, names, strict=True)]
        )
