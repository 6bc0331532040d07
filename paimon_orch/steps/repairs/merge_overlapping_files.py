"""Merges files whose keys overlap and that readers do not merge.

Writers of Java Paimon refuse to compact files of one level that overlap. Files of several levels
overlap after readers stopped to merge levels, see
:mod:`paimon_orch.steps.inspection.unmerged_levels`.

The merge engine of the table decides which row of a key remains. Readers that do not merge files of
one level saw all of them before. The files stay on their level, unless the order of merged values
needs those of other levels too. No changelog is written: the rows were in a changelog when they
were compacted. See docs/format/levels-and-sorted-runs.md.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from paimon_orch.errors import UnsupportedError
from paimon_orch.files.data_file_reader import FileReader
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.merge.compact.bucket_compaction import CompactionTask
from paimon_orch.merge.compact.bucket_deletion_vectors import read_deletion_vectors
from paimon_orch.merge.engine.merge_engine import create_merge_engine
from paimon_orch.merge.tree.compact_reason import CompactReason
from paimon_orch.merge.tree.levels import has_ascending_sequences, split_into_sections
from paimon_orch.steps.cleanup.quarantine import Quarantine
from paimon_orch.steps.compaction.compact import COMPACT
from paimon_orch.steps.compaction.plan import CompactionPlan, CompactRequest
from paimon_orch.steps.compaction.primary_key import (
    PrimaryKeyCompactionUnit,
    select_primary_key_units,
)
from paimon_orch.steps.inspection.duplicate_keys import ComparedBucket, DuplicateKeyFinder
from paimon_orch.steps.inspection.unmerged_levels import find_unmerged_levels, read_merging_schemas
from paimon_orch.steps.repairs.replaced_rows import put_rows_aside, read_replaced_rows
from paimon_orch.table.chain.chain_branches import refuse_chain_table
from paimon_orch.table.commit.conflict_detection import BucketGuard
from paimon_orch.table.filter.partition_spec import format_partition
from paimon_orch.table.scan.bucket_split import BucketSplit
from paimon_orch.table.scan.partition_selection import open_reader, plan_live_buckets
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState


def plan(table: Table, request: CompactRequest) -> CompactionPlan:
    """Find the files of the latest snapshot that overlap others which readers do not merge."""
    state = table.load()
    schema, snapshot = state.schema, state.snapshot
    if snapshot is None:
        return CompactionPlan(request=request, state=state)
    live = plan_live_buckets(state, schema, snapshot, request).take_merged()
    unmerged = find_unmerged_levels(state, live)
    suspects = np.union1d(live.levels.find_possible_overlaps(), unmerged)
    splits = live.build_splits(suspects)
    units = [
        unit
        for split, is_unmerged in zip(splits, np.isin(suspects, unmerged).tolist(), strict=True)
        for unit in _plan_units(state, split, has_unmerged_levels=is_unmerged)
    ]
    if not units:
        return CompactionPlan(request=request, state=state)
    state.check_step(StepKind.COMPACT)
    create_merge_engine(schema)
    refuse_chain_table(
        table.identifier, schema, "merging overlapping files", "drop the partitions instead"
    )
    buckets = {unit.partition_bucket for unit in units}
    return CompactionPlan(
        request=request,
        state=state,
        snapshot_id=snapshot.id,
        reader=open_reader(state, schema, live),
        units=tuple(units),
        guards=tuple(
            BucketGuard.of(split.partition_bucket, split.files, split.vectors)
            for split in splits
            if split.partition_bucket in buckets
        ),
    )


def _plan_units(
    state: TableState, split: BucketSplit, *, has_unmerged_levels: bool
) -> list[PrimaryKeyCompactionUnit]:
    """Return the units of a bucket: one for each level with overlapping files, or one for all."""
    levels = sorted({file.level for file in split.files} - {0})
    overlapping = {level: _find_overlapping(state, split, level) for level in levels}
    selected = {level: files for level, files in overlapping.items() if files}
    merges_levels = has_unmerged_levels and _merges_older_levels(state, split)
    if has_unmerged_levels or (selected and not _can_merge_levels_separately(state, split, levels)):
        selected = {levels[-1]: tuple(file for file in split.files if file.level > 0)}
    return [
        PrimaryKeyCompactionUnit(
            partition=split.partition,
            bucket=split.bucket,
            total_buckets=split.total_buckets,
            partition_text=format_partition(split.partition, state.schema),
            reason=CompactReason.OVERLAPPING_FILES,
            task=replace(
                _build_task(state, split, level, files, is_partial=len(selected) > 1),
                merges_levels=merges_levels,
            ),
        )
        for level, files in selected.items()
    ]


def _build_task(
    state: TableState,
    split: BucketSplit,
    level: int,
    files: Sequence[DataFileMeta],
    *,
    is_partial: bool,
) -> CompactionTask:
    has_other_files = any(file.level > 0 and file not in files for file in split.files)
    return CompactionTask(
        partition_bucket=split.partition_bucket,
        files=tuple(files),
        higher_level_files=(),
        output_level=level,
        # Below the highest level, a merge writes no changelog.
        max_level=level + 1,
        # Another level can have older rows, although it is a lower one.
        drop_delete=state.schema.typed_options.has_deletion_vectors or not has_other_files,
        vectors=split.vectors,
        is_partial=is_partial,
    )


def _can_merge_levels_separately(
    state: TableState, split: BucketSplit, levels: Sequence[int]
) -> bool:
    """Return whether merging the files of each level keeps the merged rows of the bucket.

    Aggregations and partial updates need the rows of a key in the order of their sequence numbers.
    """
    engine = create_merge_engine(state.schema)
    if engine.is_deduplicate or engine.is_first_row:
        return True
    oldest_first = [[f for f in split.files if f.level == level] for level in levels[::-1]]
    if has_ascending_sequences(oldest_first):
        return True
    if state.schema.typed_options.changelog_producer == "full-compaction":
        raise UnsupportedError(
            f"{state.identifier}: files of several levels have rows of the same time, and merging "
            "them would leave out rows of the changelog ('changelog-producer' = full-compaction); "
            "rewrite the partition with an overwrite. Nothing was changed"
        )
    return False


def _merges_older_levels(state: TableState, split: BucketSplit) -> bool:
    """Return whether rows on a level of the bucket are to be merged with those of higher levels.

    They are not if lookups merged them already when they were written. Raises
    :class:`UnsupportedError` if values or rows of a changelog would be lost.
    """
    engine = create_merge_engine(state.schema)
    has_newest_values = engine.is_deduplicate or engine.is_first_row
    if state.schema.typed_options.changelog_producer == "full-compaction":
        fix = "run a full compaction" if has_newest_values else "overwrite the partition"
        raise UnsupportedError(
            f"{state.identifier}: files of several levels overlap, and merging them would leave out "
            f"rows of the changelog ('changelog-producer' = full-compaction); {fix} instead. "
            "Nothing was changed"
        )
    older = read_merging_schemas(state, {file.schema_id for file in split.files if file.level > 0})
    has_lookups = {schema.typed_options.needs_lookup for schema in older.values()}
    if len(has_lookups) > 1 and not has_newest_values:
        raise UnsupportedError(
            f"{state.identifier}: files of several levels overlap, and only some of their values are "
            "merged ('changelog-producer' or 'force-lookup' was changed, too); overwrite the "
            "partition instead. Nothing was changed"
        )
    return False in has_lookups


def _find_overlapping(
    state: TableState, split: BucketSplit, level: int
) -> tuple[DataFileMeta, ...]:
    """Return the files of a level that share a range of keys with others of this level."""
    files = [file for file in split.files if file.level == level]
    sections = split_into_sections(files, state.schema.key_fields)
    return tuple(file for runs in sections if len(runs) > 1 for run in runs for file in run)


def _put_replaced_rows_aside(table: Table, plan: CompactionPlan) -> CompactionPlan:
    """Write the rows that the merge replaces to the quarantine, before anything is merged."""
    assert plan.reader is not None
    state = plan.state
    quarantine = Quarantine.of(table, state.schema)
    folder = quarantine.build_folder_name()
    for unit in select_primary_key_units(plan):
        directory = state.paths.bucket_dir(state.schema, unit.partition, unit.bucket)
        bucket = directory.removeprefix(f"{state.paths.root}/")
        rows = _read_replaced_rows(plan.reader, unit)
        put_rows_aside(quarantine, folder, f"{bucket}/level-{unit.output_level}.parquet", rows)
    return plan


def _read_replaced_rows(reader: FileReader, unit: PrimaryKeyCompactionUnit) -> Iterator[pa.Table]:
    vectors = read_deletion_vectors(reader.io, reader.paths, reader.schema, unit.task.vectors)
    compared = ComparedBucket(
        bucket=unit.partition_bucket, runs=[[file] for file in unit.inputs], deletions=vectors
    )
    duplicates = DuplicateKeyFinder(reader, [compared]).find()
    positions = duplicates.positions.get(unit.partition_bucket, {})
    return read_replaced_rows(reader, unit.partition_bucket, unit.inputs, positions)


MERGE_OVERLAPPING_FILES = replace(
    COMPACT,
    title="merge the overlapping files of",
    planner=plan,
    replan=None,
    prepare=_put_replaced_rows_aside,
)
