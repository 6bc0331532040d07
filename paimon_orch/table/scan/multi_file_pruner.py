"""What a filter lets a scan leave out, for all files of a manifest at once: by statistics and embedded indexes.

The same judgements as those of :mod:`paimon_orch.table.scan.file_pruner`, a column a step, and before objects are made of files.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paimon_orch.files.file_index_reader import IndexedFiles
from paimon_orch.files.stats.multi_file_evaluator import Bounds, counts, may_match_many
from paimon_orch.format.bytes.binary_batch import Indices
from paimon_orch.format.manifest.file_fields import FileFields
from paimon_orch.format.row.binary_row_columns import read_fields
from paimon_orch.format.row.simple_stats import SimpleStats
from paimon_orch.format.types.data_types import AtomicType
from paimon_orch.format.types.predicate import Predicate
from paimon_orch.table.scan.file_stats import FileStats, Source

_AT_ONCE = 8_192  # files whose statistics and indexes are in memory at a time

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ManyFiles:
    """Judges many files of one table by a bound predicate; without ``indexed`` by their statistics alone."""

    predicate: Predicate
    stats: FileStats
    indexed: IndexedFiles | None

    def may_match(self, files: FileFields, partitions: Sequence[bytes]) -> Mask:
        """Tell which files, each of a partition, may have matching rows."""
        found = [np.zeros(0, bool)]
        for start in range(0, len(partitions), _AT_ONCE):
            lanes = np.arange(start, min(start + _AT_ONCE, len(partitions)))
            found.append(self._judged(files.take(lanes), partitions[start : start + _AT_ONCE]))
        return np.concatenate(found)

    def _judged(self, files: FileFields, partitions: Sequence[bytes]) -> Mask:
        rows = np.array(files.get("_ROW_COUNT"), np.int64)
        found = np.zeros(len(rows), bool)
        for at, lanes in _alike(files):
            chosen, parts = files.take(lanes), [partitions[lane] for lane in lanes.tolist()]
            bounds = _BoundsOf(self.stats, self.stats.sources(*at), chosen, parts, rows[lanes])
            found[lanes] = may_match_many(self.predicate, bounds, rows[lanes])
        if self.indexed is not None:
            left = np.flatnonzero(found)
            found[left[self.indexed.without_rows(files.take(left))]] = False
        return found


def _item(values: Sequence[int | None] | None, index: int) -> int | None:
    return None if values is None or index >= len(values) else values[index]


_Shape = tuple[int, tuple[str, ...] | None]


def _alike(files: FileFields) -> "list[tuple[_Shape, Indices]]":
    """Group files by their schema and the columns that they have statistics of."""
    dense = (
        written if listed is None else listed
        for listed, written in zip(
            files.get("_VALUE_STATS_COLS"), files.get("_WRITE_COLS"), strict=True
        )
    )
    groups: dict[_Shape, list[int]] = {}
    for lane, at in enumerate(zip(files.get("_SCHEMA_ID"), dense, strict=True)):
        groups.setdefault(at, []).append(lane)
    return [(at, np.array(lanes)) for at, lanes in groups.items()]


class _BoundsOf:
    """The bounds of columns in files of one shape, decoded when they are asked for."""

    def __init__(
        self,
        stats: FileStats,
        sources: Mapping[str, Source | None],
        files: FileFields,
        partitions: Sequence[bytes],
        rows: Indices,
    ) -> None:
        self._stats, self._sources, self._files = stats, sources, files
        self._partitions, self._rows = partitions, rows
        self._known: dict[str, Bounds] = {}

    def __call__(self, name: str) -> Bounds:
        if name not in self._known:
            self._known[name] = self._bounds(name)
        return self._known[name]

    def _bounds(self, name: str) -> Bounds:
        if name in self._stats.partition_keys:
            return self._constant(name)
        if name not in self._sources:
            return Bounds.unknown()
        source = self._sources[name]
        return Bounds.unknown(self._rows) if source is None else self._stored(source)

    def _constant(self, name: str) -> Bounds:
        numbers: dict[bytes, int] = {}
        codes = [numbers.setdefault(part, len(numbers)) for part in self._partitions]
        each = Bounds.of([self._stats.constants(part)[name] for part in numbers])
        return each.take(np.array(codes, np.int64))

    def _stored(self, source: Source) -> Bounds:
        prefix = "_KEY_STATS" if source.is_key else "_VALUE_STATS"
        lows, highs, nulls = (
            self._files.get(f"{prefix}.{part}")
            for part in ("_MIN_VALUES", "_MAX_VALUES", "_NULL_COUNTS")
        )
        data_type, index = source.stored_type, source.index
        if isinstance(data_type, AtomicType) and not source.is_cast:
            low = read_fields(lows, index, source.arity, data_type)
            high = read_fields(highs, index, source.arity, data_type)
            if low is not None and high is not None:
                numbers = counts([_item(of_file, index) for of_file in nulls])
                return Bounds.usable(low, high, numbers, data_type)
        stats = map(SimpleStats, lows, highs, nulls)
        names = self._files.names
        return Bounds.of([source.stats_of(s, name) for s, name in zip(stats, names, strict=True)])
