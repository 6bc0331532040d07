"""Divides a scan into the splits of tasks: independent parts of buckets, packed by size."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.options.core_options import (
    SOURCE_SPLIT_OPEN_FILE_COST,
    SOURCE_SPLIT_TARGET_SIZE,
)
from paimon_orch.format.schema import TableSchema
from paimon_orch.merge.tree.levels import plan_merge_sections
from paimon_orch.table.scan.bucket_split import BucketSplit, clip_to_files, is_raw_convertible
from paimon_orch.table.scan.data_evolution import group_files_by_rows, has_data_evolution
from paimon_orch.table.scan.scan import Scan

_TARGET_UNIT_BYTES = 32 << 20  # a read of this size takes longer than the start of a Spark task


def divide_splits(splits: Iterable[BucketSplit], scan: Scan) -> list[BucketSplit]:
    """Return the parts of buckets that can be read independently.

    A part is a file or, if keys must be merged, a section of files with overlapping keys.
    """
    return [part for split in splits for part in _divide_split(split, scan.find_scan_of(split))]


def _divide_split(split: BucketSplit, scan: Scan) -> Iterator[BucketSplit]:
    schema = scan.schema
    if split.postponed_files:
        yield split
        return
    groups: Iterable[Sequence[DataFileMeta]]
    if has_data_evolution(schema):
        groups = group_files_by_rows(split.files)
    elif not schema.primary_keys or (
        is_raw_convertible(split.files, schema) and not scan.is_audit_log and not split.is_chained
    ):
        groups = [(file,) for file in split.files]
    else:
        groups = (
            [file for run in section for file in run]
            for section in plan_merge_sections(split.files, schema)
        )
    for group in groups:
        yield _restrict_to_files(split, group)


def _restrict_to_files(split: BucketSplit, files: Sequence[DataFileMeta]) -> BucketSplit:
    """Return a split with only some files of a bucket, and their deletion vectors."""
    vectors = restrict_vectors_to_files(split.vectors, files)
    names = {file.file_name for file in files}
    origins = tuple(origin for origin in split.origins if origin.file_name in names)
    return replace(
        split,
        files=tuple(files),
        vectors=vectors,
        origins=origins,
        row_ids=clip_to_files(split.row_ids, files),
        file_rows={name: rows for name, rows in (split.file_rows or {}).items() if name in names},
    )


def restrict_vectors_to_files(
    entries: Iterable[IndexManifestEntry], files: Iterable[DataFileMeta]
) -> tuple[IndexManifestEntry, ...]:
    """Return index files with only the deletion vectors of some data files."""
    names = {file.file_name for file in files}
    restricted = (
        replace(entry, ranges=tuple(r for r in entry.ranges or () if r.data_file in names))
        for entry in entries
    )
    return tuple(entry for entry in restricted if entry.ranges)


def pack_splits(splits: Sequence[BucketSplit], schema: TableSchema) -> Iterator[list[BucketSplit]]:
    """Yield the splits of each task, in order, up to ``source.split.target-size``.

    Each file counts as at least ``source.split.open-file-cost`` bytes. Small tables are divided so
    that all cores are used.
    """
    options = schema.typed_options
    target = options.get(SOURCE_SPLIT_TARGET_SIZE)
    cost = options.get(SOURCE_SPLIT_OPEN_FILE_COST)
    sizes = [sum(max(file.file_size, cost) for file in split.files) for split in splits]
    target = min(target, max(cost, sum(sizes) // (os.cpu_count() or 1)))
    task: list[BucketSplit] = []
    size = 0
    for split, split_size in zip(splits, sizes, strict=True):
        if task and size + split_size > target:
            yield task
            task, size = [], 0
        task.append(split)
        size += split_size
    if task:
        yield task


def split_bucket_by_size(split: BucketSplit, schema: TableSchema) -> Iterator[BucketSplit]:
    """Split a bucket into parts that are large enough for a task, in row order."""
    cost = schema.typed_options.get(SOURCE_SPLIT_OPEN_FILE_COST)
    groups: Iterable[Sequence[DataFileMeta]]
    if has_data_evolution(schema):
        groups = group_files_by_rows(split.files)
    else:
        groups = [(file,) for file in sorted(split.files, key=lambda f: f.min_sequence_number)]
    part, weight = list[DataFileMeta](), 0
    for group in groups:
        part.extend(group)
        weight += sum(max(file.file_size, cost) for file in group)
        if weight >= _TARGET_UNIT_BYTES:
            yield replace(split, files=tuple(part))
            part, weight = [], 0
    if part:
        yield replace(split, files=tuple(part))
