"""Finds inserted, deleted and updated rows between two states of a bucket.

See docs/format/incremental-and-streaming-reads.md#incremental-reads.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from paimon_orch.errors import InputError
from paimon_orch.files.data_file_reader import FileReader
from paimon_orch.format.arrays import Int32Array, Int64Array, Mask
from paimon_orch.format.java_equality import UNKNOWN_CODE, build_value_codes, find_changed_rows
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.row.row_kind import ROW_KIND_SYMBOLS
from paimon_orch.format.schema import SEQUENCE_NUMBER, TableSchema
from paimon_orch.merge.sort.sort_merge_reader import MergeRun, merge_runs
from paimon_orch.table.bucket_readers.append_reader import add_constant_row_kind
from paimon_orch.table.bucket_readers.open_bucket import open_bucket
from paimon_orch.table.bucket_readers.primary_key_reader import PrimaryKeyReader
from paimon_orch.table.scan.base_scan import ROW_KIND
from paimon_orch.table.scan.bucket_split import BucketSplit
from paimon_orch.table.scan.data_evolution import group_files_by_rows, has_data_evolution

BucketPair = tuple[BucketSplit | None, BucketSplit | None]
_INSERT, _, _UPDATE, _DELETE = ROW_KIND_SYMBOLS
_BEFORE, _AFTER = 0, 1


@dataclass(frozen=True, slots=True)
class DiffSide:
    """A bucket in one of the states, and the reader with the options of this state."""

    reader: FileReader
    split: BucketSplit | None


def find_changed_buckets(
    before: Iterable[BucketSplit],
    after: Iterable[BucketSplit],
    schema: TableSchema,
    *,
    includes_same_files: bool = False,
) -> Iterator[BucketPair]:
    """Return the pairs of buckets whose files or deletion vectors differ between two states.

    With ``includes_same_files``, also returns the other buckets, because the states merge their
    files differently. Raises :class:`InputError` if the states have different bucket counts in a partition.
    """
    old = {split.partition_bucket: split for split in before}
    new = {split.partition_bucket: split for split in after}
    if schema.primary_keys:
        _check_bucket_counts(old.values(), new.values())
    for bucket in dict.fromkeys([*old, *new]):
        old_files = _collect_identities(old.get(bucket), schema)
        if includes_same_files or old_files != _collect_identities(new.get(bucket), schema):
            yield old.get(bucket), new.get(bucket)


def _check_bucket_counts(old: Iterable[BucketSplit], new: Iterable[BucketSplit]) -> None:
    counts = {split.partition: split.total_buckets for split in old}
    for split in new:
        count = counts.get(split.partition, split.total_buckets)
        if count != split.total_buckets:
            raise InputError(
                f"the number of buckets of a partition changed from {count} to "
                f"{split.total_buckets} between the snapshots; they cannot be compared"
            )


def _collect_identities(split: BucketSplit | None, schema: TableSchema) -> set[object]:
    return set() if split is None else set(_identify_files(split, schema))


def _identify_files(split: BucketSplit, schema: TableSchema) -> list[object]:
    """Return the name, level and deletion vector of each file, which determine its rows.

    With data evolution, those of all files of the same rows determine the rows.
    """
    vectors = {
        item.data_file: (entry.file_name, item.offset)
        for entry in split.vectors
        for item in entry.ranges or ()
    }

    def identify(file: DataFileMeta) -> object:
        return file.file_name, file.level, vectors.get(file.file_name)

    if not has_data_evolution(schema):
        return [identify(file) for file in split.files]
    identities = {
        file.file_name: (file.first_row_id, *map(identify, group))
        for group in group_files_by_rows(split.files)
        for file in group
    }
    return [identities[file.file_name] for file in split.files]


def diff_bucket(old: DiffSide, new: DiffSide) -> Iterator[pa.RecordBatch]:
    """Yield the changes of one bucket with all columns; the first column is ``rowkind``."""
    if new.reader.schema.primary_keys:
        yield from _diff_by_key(old, new)
    else:
        yield from _diff_by_row(old, new)


def _diff_by_key(old: DiffSide, new: DiffSide) -> Iterator[pa.RecordBatch]:
    """Compare both states by key, in bounded memory."""
    runs = [
        MergeRun(_read_side(side.reader, side.split, number))
        for number, side in ((_BEFORE, old), (_AFTER, new))
        if side.split is not None
    ]
    schema = new.reader.schema
    names = schema.names
    for step in merge_runs(runs, schema.trimmed_primary_keys):
        sizes = np.diff(np.append(step.starts, len(step.order)))
        first, last = step.order[step.starts], step.newest_row_per_key
        is_after = step.levels[last] == _AFTER
        rows = step.rows.select(names)
        old_rows, new_rows = rows.take(pa.array(first)), rows.take(pa.array(last))
        kinds = np.where(sizes > 1, _UPDATE, np.where(is_after, _INSERT, _DELETE))
        is_change = (sizes == 1) | find_changed_rows(old_rows, new_rows)
        changed_rows = new_rows.filter(pa.array(is_change))
        changed_kinds = pa.array(kinds[is_change], pa.string())
        yield from (
            changed_rows.add_column(0, ROW_KIND.name, changed_kinds).combine_chunks().to_batches()
        )


def _read_side(
    reader: FileReader, split: BucketSplit, side: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of one state in key order; ``side`` is their level and sequence number."""
    for batch in PrimaryKeyReader(reader, split, reader.schema.fields).read_merged():
        numbers = pa.array(np.full(batch.num_rows, side, np.int64))
        yield side, batch.append_column(SEQUENCE_NUMBER.name, numbers)


def _diff_by_row(old: DiffSide, new: DiffSide) -> Iterator[pa.RecordBatch]:
    """Compare the rows of files that only one of the states has, for tables without a key.

    If files were only added, all their rows are inserts. Otherwise, as after a compaction, equal
    rows of both states cancel out; holds the rows of removed files in memory.
    """
    schema = new.reader.schema
    shared = _collect_identities(old.split, schema) & _collect_identities(new.split, schema)
    old_batches = list(_read_unshared_files(old, shared))
    new_batches = _read_unshared_files(new, shared)
    if not old_batches:
        yield from (add_constant_row_kind(batch, _INSERT) for batch in new_batches)
        return
    removed = _to_structs(pa.Table.from_batches(old_batches))
    codes = build_value_codes(removed.type)
    removed_codes = codes.learn(removed)
    counts = np.bincount(removed_codes)
    for rows in _concat_batches(new_batches, at_least=len(removed)):
        is_removed = _take_counts(codes.encode(_to_structs(rows)), counts)
        for batch in rows.filter(pa.array(~is_removed)).to_batches():
            yield add_constant_row_kind(batch, _INSERT)
    starts = np.cumsum([0, *(batch.num_rows for batch in old_batches)])
    for start, batch in zip(starts, old_batches, strict=False):
        batch_codes = removed_codes[start : start + batch.num_rows]
        deleted = batch.filter(pa.array(_take_counts(batch_codes, counts)))
        if deleted.num_rows:
            yield add_constant_row_kind(deleted, _DELETE)


def _concat_batches(batches: Iterable[pa.RecordBatch], *, at_least: int) -> Iterator[pa.Table]:
    """Yield tables of at least ``at_least`` rows; the last one may have fewer."""
    pending, count = list[pa.RecordBatch](), 0
    for batch in batches:
        pending.append(batch)
        count += batch.num_rows
        if count >= at_least:
            yield pa.Table.from_batches(pending)
            pending, count = [], 0
    if pending:
        yield pa.Table.from_batches(pending)


def _to_structs(rows: pa.Table) -> pa.StructArray:
    """Return rows as one array, with large types: text and binary columns may exceed 2 GiB."""
    large = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
    schema = pa.schema(
        [field.with_type(large.get(field.type, field.type)) for field in rows.schema]
    )
    return rows.cast(schema).to_struct_array().combine_chunks()


def _take_counts(codes: Int32Array, counts: Int64Array) -> Mask:
    """Return a mask of the first ``counts[code]`` rows per code; subtracts them from ``counts``."""
    mask = np.zeros(len(codes), bool)
    counted = np.flatnonzero(codes != UNKNOWN_CODE)
    order = counted[np.argsort(codes[counted], kind="stable")]
    in_order = codes[order]
    starts = np.flatnonzero(np.diff(in_order, prepend=UNKNOWN_CODE))
    ranks = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order)))
    mask[order] = ranks < counts[in_order]
    counts -= np.bincount(codes[mask], minlength=len(counts))
    return mask


def _read_unshared_files(side: DiffSide, shared: set[object]) -> Iterator[pa.RecordBatch]:
    reader, split = side.reader, side.split
    if split is None:
        return
    pairs = zip(split.files, _identify_files(split, reader.schema), strict=True)
    files = tuple(file for file, identity in pairs if identity not in shared)
    yield from open_bucket(reader, replace(split, files=files), reader.schema.fields).batches()
