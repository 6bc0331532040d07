"""Evaluates a predicate on the btree and bitmap index files of a partition or bucket.

See docs/format/global-index-files.md#use-on-read.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from paimon_orch.files.global_index_reader import find_index_rows
from paimon_orch.format.arrays import Int64Array, Positions
from paimon_orch.format.file_index.index_keys import has_byte_keys
from paimon_orch.format.file_index.index_query import IndexFilter, is_same_type
from paimon_orch.format.global_index.key_ranges import KeySelection, select_keys
from paimon_orch.format.global_index.sorted_column import can_be_indexed
from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.format.paths import TablePaths
from paimon_orch.format.row_range_set import EMPTY_ROW_RANGES, RowRanges, unite_row_ranges
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.types.data_types import AtomicType, Field
from paimon_orch.format.types.predicate import And, Leaf, Not, Predicate
from paimon_orch.storage import FileIO
from paimon_orch.table.metadata.schema_store import SchemaStore

_PENDING_RANGES = 1 << 20
_MAX_RANGES = 16 << 20  # of 16 bytes each


@dataclass(frozen=True, slots=True, kw_only=True)
class CoveredRows:
    """The rows that an index file has, as ranges of its positions in ascending order."""

    entry: IndexManifestEntry
    positions: Int64Array
    """The first position of each range; all positions of the file are in a range."""
    starts: Int64Array
    """The first row of each range, or a negative number if the rows are not read."""
    current: RowRanges
    """The rows whose values in the index are those of the table."""

    def find_rows(self, positions: Positions) -> RowRanges:
        """Return the rows at positions of the index file."""
        ranges = np.searchsorted(self.positions, positions, "right") - 1
        rows = self.starts[ranges] + positions - self.positions[ranges]
        return RowRanges.of_positions(np.sort(rows[self.starts[ranges] >= 0])) & self.current


IndexesOfColumn = Mapping[str, Sequence[CoveredRows]]
"""The index files of a column by type."""


@dataclass(frozen=True, kw_only=True)
class GlobalIndexEvaluator:
    """Evaluates a bound predicate on index files of a table."""

    io: FileIO
    paths: TablePaths
    schemas: SchemaStore
    schema: TableSchema
    predicate: Predicate

    used: dict[str, None] = field(default_factory=dict, init=False)
    """The indexes that were asked, such as ``btree(id)``."""
    _columns: dict[str, Field | None] = field(default_factory=dict, init=False, repr=False)

    def evaluate(self, indexes: Mapping[int, IndexesOfColumn], rows: RowRanges) -> RowRanges | None:
        """Return which of some rows may match; None for all rows.

        :param indexes: the index files by the id of their column
        """
        return self._evaluate(self.predicate, indexes, rows, negated=False)

    def _evaluate(
        self,
        predicate: Predicate,
        indexes: Mapping[int, IndexesOfColumn],
        rows: RowRanges,
        *,
        negated: bool,
    ) -> RowRanges | None:
        match predicate:
            case Leaf():
                return self._evaluate_leaf(predicate, indexes, rows, negated=negated)
            case Not(child=child):
                return self._evaluate(child, indexes, rows, negated=not negated)
        answers = (
            self._evaluate(child, indexes, rows, negated=negated) for child in predicate.children
        )
        is_conjunction = isinstance(predicate, And) != negated
        return _intersect(answers) if is_conjunction else _unite(answers)

    def _evaluate_leaf(
        self,
        leaf: Leaf,
        indexes: Mapping[int, IndexesOfColumn],
        rows: RowRanges,
        *,
        negated: bool,
    ) -> RowRanges | None:
        column = None if leaf.key is not None else self.find_indexed_column(leaf.column)
        of_column = None if column is None else indexes.get(column.id)
        if column is None or of_column is None:
            return None
        assert isinstance(column.type, AtomicType)
        selection = select_keys(self._index_filter, leaf, column.type, negated=negated)
        if selection is None:
            return None
        self.used.update(dict.fromkeys(f"{kind}({column.name})" for kind in of_column))
        return _intersect(
            self._find_rows(column.type, files, selection, rows) for files in of_column.values()
        )

    def _find_rows(
        self,
        data_type: AtomicType,
        files: Sequence[CoveredRows],
        selection: KeySelection,
        rows: RowRanges,
    ) -> RowRanges:
        """Return the rows that may match by the index files of a type, and rows without index.

        Few bytes can stand for many ranges, so the ranges of many small files are united early, and
        after too many ranges no index is used. An index is used for one entry only, because any
        number of entries can name the same file.
        """
        matching = [rows - unite_row_ranges([file.current for file in files])]
        united, pending, used = 0, 0, set[str]()
        for file in files:
            path, positions = self.paths.index_file(self.schema, file.entry), None
            if path not in used and united < _MAX_RANGES:
                positions = find_index_rows(self.io, path, file.entry, data_type, selection)
            used.add(path)
            matching.append(file.current if positions is None else file.find_rows(positions))
            pending += len(matching[-1].starts)
            if pending > max(united, _PENDING_RANGES):
                matching = [unite_row_ranges(matching)]
                united, pending = len(matching[0].starts), 0
        return unite_row_ranges(matching)

    @cached_property
    def _index_filter(self) -> IndexFilter:
        return IndexFilter(self.predicate)

    def find_indexed_column(self, name: str) -> Field | None:
        """Return a column that can have an index; None if indexes must not be used."""
        if name not in self._columns:
            columns = (item for item in self.schema.fields if item.name == name)
            self._columns[name] = next(
                (column for column in columns if is_indexable(column, self.schemas)), None
            )
        return self._columns[name]


def is_indexable(column: Field, schemas: SchemaStore) -> bool:
    """Return whether indexes of a column can be used.

    An index file does not state the type of its keys, so the type must be the same in all schemas.
    Texts of all types and lengths have the same keys.
    """
    if not can_be_indexed(column.type):
        return False
    versions = schemas.get_all(schemas.ids()).values()
    others = (item for schema in versions for item in schema.fields if item.id == column.id)
    return all(_have_same_keys(other, column) for other in others)


def _have_same_keys(one: Field, other: Field) -> bool:
    types = (one.type, other.type)
    return is_same_type(*types) or all(
        isinstance(item, AtomicType) and has_byte_keys(item) for item in types
    )


def _intersect(answers: Iterable[RowRanges | None]) -> RowRanges | None:
    rows: RowRanges | None = None
    for answer in answers:
        if answer is not None:
            rows = answer if rows is None else rows & answer
    return rows


def _unite(answers: Iterable[RowRanges | None]) -> RowRanges | None:
    rows = EMPTY_ROW_RANGES
    for answer in answers:
        if answer is None:
            return None
        rows |= answer
    return rows
