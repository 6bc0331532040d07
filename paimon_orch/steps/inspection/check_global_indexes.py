"""Compares btree and bitmap indexes of columns with the rows that they cover.

See docs/format/global-index-files.md.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from paimon_orch.decode_limits import check_row_count
from paimon_orch.errors import (
    CorruptFileError,
    PaimonError,
    UnsupportedError,
    raise_if_temporary,
    wrap_decode_errors,
)
from paimon_orch.files.data_file_reader import BucketFile, FileReader
from paimon_orch.files.global_index_reader import open_global_index
from paimon_orch.format.arrays import Int64Array, to_numpy
from paimon_orch.format.deletion_vector import DeletionVector
from paimon_orch.format.display import format_count
from paimon_orch.format.global_index.sorted_column import (
    SortedColumn,
    decode_key_bounds,
    sort_column,
)
from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.format.manifest.index_source import covers_data_files, decode_index_source
from paimon_orch.format.paths import TablePaths
from paimon_orch.format.row_range_set import RowRanges, unite_row_ranges
from paimon_orch.format.types.data_types import AtomicType, Field
from paimon_orch.steps.inspection.check_metadata import SnapshotContents
from paimon_orch.steps.inspection.findings import Findings
from paimon_orch.storage import FileIO
from paimon_orch.table.column_index.global_index_evaluator import is_indexable
from paimon_orch.table.column_index.row_id_groups import (
    RowIdGroups,
    get_index_meta,
    is_sorted_index,
)
from paimon_orch.table.metadata.schema_store import SchemaStore
from paimon_orch.table.scan.data_evolution import DataEvolutionReader, RowIdGroup, find_anchor_file

_NULL = -1
_UNKNOWN = -2
_MISSING = -3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Values:
    """Values of rows, as numbers of distinct keys."""

    rows: Int64Array
    """Ascending row ids, or positions in the files of a bucket."""
    codes: Int64Array
    """The number of the key of each row, or ``_NULL``."""
    keys: pa.LargeBinaryArray
    key_counts: tuple[int, ...]
    """The number of keys of each file."""

    @classmethod
    def of(cls, parts: Sequence[SortedColumn]) -> "_Values":
        """Return the values of columns, whose positions are rows."""
        rows, codes, first = list[Int64Array](), list[Int64Array](), 0
        for column in parts:
            counts = np.diff(column.starts, append=len(column.positions))
            rows += [column.positions, column.null_positions]
            codes.append(np.repeat(np.arange(first, first + len(column.keys)), counts))
            codes.append(np.full(len(column.null_positions), _NULL, np.int64))
            first += len(column.keys)
        joined = np.concatenate([np.empty(0, np.int64), *rows])
        order = np.argsort(joined, kind="stable")
        return cls(
            rows=joined[order],
            codes=np.concatenate([np.empty(0, np.int64), *codes])[order],
            keys=pa.concat_arrays(
                [pa.array([], pa.large_binary()), *(column.keys for column in parts)]
            ),
            key_counts=tuple(len(column.keys) for column in parts),
        )

    def number_keys(self, other: "_Values") -> Int64Array:
        """Return the numbers of the keys among those of ``other``, or ``_UNKNOWN``."""
        numbers = pc.index_in(self.keys, value_set=other.keys)
        return to_numpy(numbers, null=_UNKNOWN).astype(np.int64)

    def is_in_order_of(self, other: "_Values") -> bool:
        """Return whether the keys of each file are in the order of the keys of ``other``."""
        ends = np.cumsum(self.key_counts)[:-1]
        return all(
            bool((np.diff(numbers[numbers != _UNKNOWN]) > 0).all())
            for numbers in np.split(self.number_keys(other), ends)
        )

    def find_codes(self, other: "_Values", rows: Int64Array) -> Int64Array:
        """Return the keys of some rows as numbers of the keys of ``other``."""
        places = np.searchsorted(self.rows, rows)
        is_found = places < len(self.rows)
        is_found[is_found] = self.rows[places[is_found]] == rows[is_found]
        numbers = np.append(self.number_keys(other), _NULL)  # the last item is that of nulls
        codes = np.full(len(rows), _MISSING, np.int64)
        codes[is_found] = numbers[self.codes[places[is_found]]]
        return codes


@dataclass(slots=True, kw_only=True)
class GlobalIndexChecker:
    """Checks the indexes of columns of a branch."""

    io: FileIO
    paths: TablePaths
    schemas: SchemaStore
    findings: Findings
    _checked: set[tuple[object, ...]] = field(default_factory=set)

    def check(self, state: SnapshotContents, vectors: Mapping[str, DeletionVector]) -> None:
        """Check the indexes of a version, with the files and rows that were not checked before."""
        entries = [entry for entry in state.index if is_sorted_index(entry)]
        fields = {item.id: item for item in state.schema.fields}
        by_column = defaultdict[tuple[object, ...], list[IndexManifestEntry]](list)
        for entry in entries:
            index_field = fields.get(get_index_meta(entry).index_field_id)
            if index_field is not None and is_indexable(index_field, self.schemas):
                group = (*entry.partition_bucket, index_field.id, entry.index_type)
                by_column[group].append(entry)
        for of_column in by_column.values():
            column = fields[get_index_meta(of_column[0]).index_field_id]
            if covers_data_files(of_column[0]):
                for entry in of_column:
                    self._check_key_index(state, entry, column)
            else:
                self._check_row_id_indexes(state, of_column, column, vectors)

    def _check_row_id_indexes(
        self,
        state: SnapshotContents,
        entries: Sequence[IndexManifestEntry],
        column: Field,
        vectors: Mapping[str, DeletionVector],
    ) -> None:
        files = [e.file for e in state.entries if e.partition == entries[0].partition]
        groups = RowIdGroups.of(files, state.schema, self.schemas)
        for joined in _join_overlapping(entries):
            rows = unite_row_ranges([entry.row_range for entry in joined])
            covered = groups.find_groups(int(rows.starts[0]), int(rows.ends[-1]))
            names = {file.file_name for group in covered for file in group}
            deleted = frozenset((name, id(vectors[name])) for name in names & vectors.keys())
            indexes = tuple((entry.file_name, entry.global_index) for entry in joined)
            check_key = (indexes, frozenset(names), deleted)
            if check_key in self._checked:
                continue
            self._checked.add(check_key)
            stale = unite_row_ranges([e.row_range - groups.find_current_rows(e) for e in joined])
            indexed = self._read_indexes(state, joined, column)
            if indexed is None:
                continue
            if not covered:
                continue
            expected = self._read_groups(state, covered, column, vectors)
            current = (rows - stale) & groups.rows
            self._compare(state, joined, indexed, expected, current)

    def _check_key_index(
        self, state: SnapshotContents, entry: IndexManifestEntry, column: Field
    ) -> None:
        """Check an index of a primary-key table; data files do not change."""
        check_key = (entry.file_name, entry.global_index)
        if check_key in self._checked:
            return
        try:
            source = decode_index_source(entry)
        except UnsupportedError:
            return
        live = {e.file.file_name: e.file for e in state.entries
                if e.partition_bucket == entry.partition_bucket}  # fmt: skip
        names = [] if source is None else [name for name, _ in source.files]
        if source is None or not set(names) <= live.keys() or source.row_count != entry.row_count:
            return  # readers do not use it
        self._checked.add(check_key)
        indexed = self._read_indexes(state, [entry], column)
        if indexed is None:
            return
        reader = self._build_reader(state)
        chunks = [
            batch.column(0)
            for name in names
            for batch in reader.read(BucketFile(*entry.partition_bucket, live[name]), [column])
        ]
        assert isinstance(column.type, AtomicType)
        sorted_rows = sort_column(chunks, column.type)
        size = sum(live[name].file_size for name in names)
        check_row_count(source.row_count, size, entry.file_name)
        rows = RowRanges.of(np.array([0]), np.array([source.row_count]))
        expected = _Values.of([sorted_rows])
        self._compare(state, [entry], indexed, expected, rows)

    def _build_reader(self, state: SnapshotContents) -> FileReader:
        schemas = self.schemas.get_all({entry.file.schema_id for entry in state.entries})
        return FileReader(self.io, self.paths, state.schema, schemas)

    def _read_indexes(
        self, state: SnapshotContents, entries: Sequence[IndexManifestEntry], column: Field
    ) -> _Values | None:
        """Return the values in index files; None if a file is damaged or of an unknown version."""
        parts = []
        for entry in entries:
            path = self.paths.index_file(state.schema, entry)
            first = get_index_meta(entry).row_range_start
            assert isinstance(column.type, AtomicType)
            try:
                with open_global_index(self.io, path, entry, column.type) as reader:
                    content = reader.read_column()
                with wrap_decode_errors(path):
                    _check_bounds(entry, content)
            except UnsupportedError:
                return None
            except (PaimonError, OSError) as error:
                raise_if_temporary(error)
                self.findings.add("global-index", state.version, str(error))
                return None
            count = entry.row_range.count
            rows = np.sort(np.concatenate([content.positions, content.null_positions]))
            if len(rows) and (rows[-1] >= count or (np.diff(rows) == 0).any()):
                text = f"{entry.file_name} has a row several times, or rows out of its range"
                self.findings.add("global-index", state.version, text)
                return None
            parts.append(
                replace(
                    content,
                    positions=content.positions + first,
                    null_positions=content.null_positions + first,
                )
            )
        return _Values.of(parts)

    def _read_groups(
        self,
        state: SnapshotContents,
        groups: Sequence[RowIdGroup],
        column: Field,
        vectors: Mapping[str, DeletionVector],
    ) -> _Values:
        """Return the values of the rows that are not deleted."""
        reader, rows, chunks = self._build_reader(state), list[Int64Array](), list[pa.Array]()
        buckets = {entry.file.file_name: entry.partition_bucket for entry in state.entries}
        for group in groups:
            anchor = find_anchor_file(group)
            check_row_count(anchor.row_count, anchor.file_size, anchor.file_name)
            positions = np.arange(anchor.row_count)
            if anchor.file_name in vectors:
                vectors[anchor.file_name].check_rows(anchor.row_count, anchor.file_name)
                deleted = vectors[anchor.file_name].positions()
                positions = np.setdiff1d(positions, deleted, assume_unique=True)
            bucket = buckets[anchor.file_name]
            batches = DataEvolutionReader(reader, *bucket, group).batches([column], vectors)
            chunks += [batch.column(0) for batch in batches]
            rows.append(positions + (anchor.first_row_id or 0))
        assert isinstance(column.type, AtomicType)
        joined = np.concatenate(rows)
        if not chunks:
            return _Values.of([])
        values = sort_column(chunks, column.type)
        moved = replace(
            values,
            positions=joined[values.positions],
            null_positions=joined[values.null_positions],
        )
        return _Values.of([moved])

    def _compare(
        self,
        state: SnapshotContents,
        entries: Sequence[IndexManifestEntry],
        indexed: _Values,
        expected: _Values,
        current: RowRanges,
    ) -> None:
        starts = np.searchsorted(current.ends, expected.rows, "right")
        following = np.append(current.starts, np.iinfo(np.int64).max)[starts]
        is_current = following <= expected.rows
        rows, codes = expected.rows[is_current], expected.codes[is_current]
        actual = indexed.find_codes(expected, rows)
        is_missing = actual == _MISSING
        is_wrong = (actual != codes) & ~is_missing
        names = ", ".join(sorted(entry.file_name for entry in entries))
        if not indexed.is_in_order_of(expected):
            self.findings.add("global-index", state.version, f"{names} has keys out of order")
        for mask, problem in ((is_missing, "lacks"), (is_wrong, "has wrong values of")):
            if mask.any():
                text = (
                    f"{names} {problem} {format_count(int(mask.sum()), 'row')}; the first is row "
                    f"{rows[mask][0]}"
                )
                self.findings.add("global-index", state.version, text)


def _check_bounds(entry: IndexManifestEntry, content: SortedColumn) -> None:
    """Check the bounds in the index manifest, which readers use to leave out files."""
    meta = get_index_meta(entry).index_meta
    if meta is None:
        return
    bounds = decode_key_bounds(meta)
    keys = content.keys
    first, last = (keys[0].as_py(), keys[-1].as_py()) if len(keys) else (None, None)
    if (bounds.first, bounds.last, bounds.has_nulls) != (
        first,
        last,
        len(content.null_positions) > 0,
    ):
        raise CorruptFileError(
            entry.file_name, "its smallest or greatest key differs from its manifest entry"
        )


def _join_overlapping(
    entries: Sequence[IndexManifestEntry],
) -> Iterator[list[IndexManifestEntry]]:
    """Yield the index files whose ranges of rows overlap: each has a part of the values."""
    ordered = sorted(entries, key=lambda entry: get_index_meta(entry).row_range_start)
    ends = np.maximum.accumulate([get_index_meta(entry).row_range_end for entry in ordered])
    breaks = [
        number
        for number in range(1, len(ordered))
        if get_index_meta(ordered[number]).row_range_start > ends[number - 1]
    ]
    for start, end in pairwise([0, *breaks, len(ordered)]):
        yield ordered[start:end]
