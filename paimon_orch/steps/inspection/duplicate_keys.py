"""Finds the rows of keys that are live several times, in the memory of a sort-merge.

See docs/format/invariants.md and docs/format/dynamic-buckets.md#hash-index.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from paimon_orch.files.data_file_reader import ROW_POSITION, SYSTEM_FIELDS, BucketFile, FileReader
from paimon_orch.format.arrays import (
    Indices,
    Int32Array,
    Int64Array,
    Mask,
    to_arrow_array,
    to_numpy,
)
from paimon_orch.format.bucket.bucket_function import hash_rows
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.bytes.roaring import build_bitmap_from_sorted
from paimon_orch.format.deletion_vector import DeletionVector
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.options.core_options import LOCAL_SORT_MAX_FILES, WRITE_BUFFER_SIZE
from paimon_orch.format.row.row_kind import is_retract
from paimon_orch.format.schema import KEY_PREFIX, VALUE_KIND
from paimon_orch.merge.engine.merge_engine import create_merge_engine
from paimon_orch.merge.sort.external_sort import ExternalSort
from paimon_orch.merge.sort.key_order import KeyColumns, KeyOrderChecker
from paimon_orch.merge.sort.sort_merge_reader import (
    LevelRows,
    MergeBatch,
    MergeRun,
    build_sorted_batch,
    merge_runs,
)
from paimon_orch.merge.tree.levels import sort_oldest_first

_LOCATION = f"{KEY_PREFIX}LOCATION"  # names with this prefix are reserved
_FILE_SHIFT = 40
"""The low 40 bits of a location are the position in the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedBucket:
    """The files of a bucket to search for duplicate keys."""

    bucket: PartitionBucket
    runs: Sequence[Sequence[DataFileMeta]]
    """The sorted runs of the files, in any order."""
    deletions: Mapping[str, DeletionVector] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicateRows:
    """The rows that another row of their key replaces."""

    keys: int = 0
    """The number of keys that are live several times."""
    positions: Mapping[PartitionBucket, Mapping[str, DeletionVector]] = field(default_factory=dict)
    """The rows by bucket and data file."""
    hashes: Mapping[PartitionBucket, Int32Array] = field(default_factory=dict)
    """The hashes of the keys whose remaining row is in another bucket."""

    @property
    def row_count(self) -> int:
        """Return the number of rows."""
        files = (vector for of_bucket in self.positions.values() for vector in of_bucket.values())
        return sum(vector.cardinality for vector in files)


class DuplicateKeyFinder:
    """Compares the keys of all rows of some buckets of a partition.

    In a bucket, the merge engine decides which row of a key remains. Sequence numbers count the
    rows of one bucket, so ``sequence.field`` decides between buckets, or else the time at which the
    data file was written. With ``merges_buckets``, readers merge the rows of each bucket: only keys
    that are live in several buckets are duplicates, and none of their rows in the other buckets
    remains.
    """

    def __init__(
        self, reader: FileReader, buckets: Sequence[ComparedBucket], *, merges_buckets: bool = False
    ) -> None:
        self._reader, self._buckets = reader, buckets
        self._merges_buckets = merges_buckets
        self._schema = reader.schema
        self._engine = create_merge_engine(reader.schema)
        self._names = reader.schema.trimmed_primary_keys
        self._files = [
            (number, file)
            for number, bucket in enumerate(buckets)
            for run in bucket.runs
            for file in run
        ]
        self._file_numbers = {
            (number, file.file_name): index for index, (number, file) in enumerate(self._files)
        }
        self._bucket_numbers = np.array([number for number, _ in self._files], np.int64)
        self._times = np.array([file.creation_time or 0 for _, file in self._files], np.int64)
        self._keys = 0
        self._positions = defaultdict[int, BitMap](BitMap)
        self._hashes = defaultdict[int, list[Int32Array]](list)

    def find(self) -> DuplicateRows:
        """Read the keys, and return the rows that another row replaces.

        Raises :class:`CorruptFileError` if a file is not sorted.
        """
        clusters = self._schema.typed_options.is_pk_clustering_override
        for step in self._sort_rows() if clusters else self._merge_runs():
            self._compare(step)
        positions = defaultdict[PartitionBucket, dict[str, DeletionVector]](dict)
        for index, bitmap in self._positions.items():
            number, file = self._files[index]
            vector = DeletionVector({0: bitmap})
            positions[self._buckets[number].bucket][file.file_name] = vector
        return DuplicateRows(
            keys=self._keys,
            positions=positions,
            hashes={
                self._buckets[number].bucket: np.unique(np.concatenate(parts))
                for number, parts in self._hashes.items()
            },
        )

    def _merge_runs(self) -> Iterator[MergeBatch]:
        runs = [
            (number, run)
            for number, bucket in enumerate(self._buckets)
            for run in sort_oldest_first(bucket.runs)
        ]
        run_rows = [sum(file.row_count for file in run) for _, run in runs]
        loads = self._reader.batch_sizes.plan_merge(run_rows)
        merging = [
            MergeRun(self._read_run(number, run, load))
            for (number, run), load in zip(runs, loads, strict=True)
        ]
        yield from merge_runs(merging, self._names, self._engine.sequence)

    def _read_run(
        self, number: int, run: Sequence[DataFileMeta], batch_rows: int
    ) -> Iterator[LevelRows]:
        order = KeyOrderChecker(self._names)
        for file in run:
            for batch in self._read_file(number, file, batch_rows):
                order.check(file.file_name, batch)
                yield file.level, batch

    def _sort_rows(self) -> Iterator[MergeBatch]:
        """Yield the rows of files that are not sorted by key; all rows of a key are in a batch."""
        options = self._schema.typed_options
        with ExternalSort(
            self._names,
            memory=options.get(WRITE_BUFFER_SIZE),
            total_rows=sum(file.row_count for _, file in self._files),
            max_runs=options.get(LOCAL_SORT_MAX_FILES),
        ) as sort:
            for number, file in self._files:
                for batch in self._read_file(number, file):
                    sort.add(pa.Table.from_batches([batch]))
            rest: pa.Table | None = None
            for table in sort.read():
                rows = table if rest is None else pa.concat_tables([rest, table])
                keys = KeyColumns.of(rows, self._names)
                count = keys.count_below(keys.at(len(keys) - 1))
                rest = rows.slice(count)
                if count:
                    yield self._build_batch(rows.slice(0, count))
            if rest is not None:
                yield self._build_batch(rest)

    def _build_batch(self, rows: pa.Table) -> MergeBatch:
        return build_sorted_batch(rows, self._names, self._engine.sequence)

    def _read_file(
        self, number: int, file: DataFileMeta, batch_rows: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        bucket = self._buckets[number]
        names = {*self._names, *self._engine.sequence.names}
        columns = [field for field in self._schema.fields if field.name in names]
        first = self._file_numbers[number, file.file_name] << _FILE_SHIFT
        for batch in self._reader.read(
            BucketFile(*bucket.bucket, file),
            [*SYSTEM_FIELDS, *columns],
            bucket.deletions.get(file.file_name),
            positions=True,
            batch_rows=batch_rows,
        ):
            locations = to_arrow_array(to_numpy(batch.column(ROW_POSITION)) + first)
            yield batch.drop_columns(ROW_POSITION).append_column(_LOCATION, locations)

    def _compare(self, step: MergeBatch) -> None:
        """Add the duplicates of a batch."""
        sizes = step.sizes
        has_several = sizes > 1
        if not has_several.any():
            return
        rows = step.rows.take(to_arrow_array(step.order[np.repeat(has_several, sizes)]))
        keys = np.repeat(np.arange(int(has_several.sum())), sizes[has_several])
        locations = to_numpy(rows.column(_LOCATION))
        files = locations >> _FILE_SHIFT
        is_replaced, winners = self._find_replaced(rows, keys, files)
        if not is_replaced.any():
            return
        self._keys += len(np.unique(keys[is_replaced]))
        self._add_positions(locations[is_replaced])
        buckets = self._bucket_numbers[files]
        moves = is_replaced & (buckets != buckets[winners[keys]])
        if moves.any():
            self._add_hashes(rows.filter(to_arrow_array(moves)), buckets[moves])

    def _find_replaced(self, rows: pa.Table, keys: Indices, files: Indices) -> tuple[Mask, Indices]:
        """Return which rows are replaced, and the index of the row that each key keeps."""
        buckets = self._bucket_numbers[files]
        order = np.lexsort((buckets, keys))  # stable: by sequence within a bucket
        is_last = np.append((np.diff(keys[order]) != 0) | (np.diff(buckets[order]) != 0), True)
        is_first = np.append(True, is_last[:-1])
        candidates = order[is_first if self._engine.is_first_row else is_last]
        if self._merges_buckets and not self._engine.ignores_delete:
            candidates = candidates[~is_retract(rows.column(VALUE_KIND.name))[candidates]]
        winners = self._find_winners(rows, keys, self._times[files], candidates)
        if not self._merges_buckets:
            return np.arange(len(keys)) != winners[keys], winners
        counts = np.bincount(keys[candidates], minlength=len(winners))
        return (counts > 1)[keys] & (buckets != buckets[winners[keys]]), winners

    def _find_winners(
        self, rows: pa.Table, keys: Indices, times: Int64Array, candidates: Indices
    ) -> Indices:
        """Return the candidate of each key that remains."""
        selected = rows.take(to_arrow_array(candidates))
        order = np.lexsort(
            [
                -times[candidates] if self._engine.is_first_row else times[candidates],
                *reversed(self._engine.sequence.compute_ranks(selected)),
                keys[candidates],
            ]
        )
        winners: Indices = np.zeros(int(keys[-1]) + 1, np.int64)
        winners[keys[candidates[order]]] = candidates[order]  # the last one of a key remains
        return winners

    def _add_positions(self, locations: Int64Array) -> None:
        ordered = np.sort(locations)
        files = ordered >> _FILE_SHIFT
        distinct, starts = np.unique(files, return_index=True)
        for index, part in zip(distinct.tolist(), np.split(ordered, starts[1:]), strict=True):
            self._positions[index] |= build_bitmap_from_sorted(part & ((1 << _FILE_SHIFT) - 1))

    def _add_hashes(self, rows: pa.Table, buckets: Indices) -> None:
        fields = self._schema.key_fields
        columns = [rows.column(each.name).combine_chunks() for each in fields]
        hashes = hash_rows(columns, [each.type for each in fields])
        for number in np.unique(buckets).tolist():
            self._hashes[number].append(np.unique(hashes[buckets == number]))
