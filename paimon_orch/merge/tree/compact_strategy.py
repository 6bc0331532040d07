"""Plans the compaction of a bucket: runs to merge, and files to rewrite individually."""

from collections.abc import Sequence
from datetime import datetime

from paimon_orch.files.data_file_reader import FileReader
from paimon_orch.format.manifest.index_manifest import IndexManifestEntry
from paimon_orch.format.manifest.manifest_entry import DataFileMeta
from paimon_orch.format.options import Options
from paimon_orch.format.options.core_options import (
    COMPACTION_DELETE_RATIO_THRESHOLD,
    COMPACTION_FORCE_REWRITE_ALL_FILES,
)
from paimon_orch.merge.engine.record_level_expire import RecordLevelExpire
from paimon_orch.merge.tree.compact_reason import CompactReason
from paimon_orch.merge.tree.levels import SortedRun
from paimon_orch.merge.tree.universal_compaction import (
    RunSelection,
    select_full_compaction,
    select_levels,
    select_minor_compaction,
)

CompactionSelection = tuple[RunSelection, tuple[DataFileMeta, ...]]
DeletionVectorEntries = Sequence[IndexManifestEntry]

_DELETE_RATIO = 0.5
"""The default for primary-key tables; the option's default applies to append tables."""


def plan_full_compaction(
    reader: FileReader,
    runs: Sequence[SortedRun],
    vectors: DeletionVectorEntries,
    num_levels: int,
    now: datetime,
) -> CompactionSelection:
    """Select all runs, or the files that need a rewrite if the only run is on the highest level.

    See docs/format/universal-compaction.md.
    """
    top = num_levels - 1
    all_runs = select_full_compaction(num_levels, runs)
    if all_runs is not None and (len(runs) > 1 or runs[0].level < top):
        return all_runs, ()
    expiry = RecordLevelExpire.of(reader.schema, int(now.timestamp()))
    deleted_rows = _deleted_row_counts(vectors)
    forced = reader.schema.typed_options.get(COMPACTION_FORCE_REWRITE_ALL_FILES)
    files_to_rewrite = tuple(
        file
        for run in runs
        for file in run.files
        if forced
        or file.file_name in deleted_rows
        or (expiry is not None and expiry.touches(file, reader.schemas))
    )
    return RunSelection(0, top, CompactReason.DELETED_OR_EXPIRED_ROWS), files_to_rewrite


def plan_minor_compaction(
    options: Options,
    runs: Sequence[SortedRun],
    vectors: DeletionVectorEntries,
    num_levels: int,
    now: datetime,
    *,
    up_to_level: int | None = None,
) -> CompactionSelection:
    """Select runs by the table's options, and files on higher levels with many deleted rows.

    With ``up_to_level``, select only the runs up to this level.
    """
    if up_to_level is not None:
        levels = select_levels(num_levels, runs, up_to_level)
        return levels or RunSelection(0, num_levels - 1, CompactReason.LEVELS), ()
    selection = select_minor_compaction(options, now.replace(tzinfo=None), num_levels, runs)
    selection = selection or RunSelection(0, num_levels - 1, CompactReason.DELETED_ROWS)
    unselected_files = [
        file for run in runs[selection.count :] for file in run.files if file.level > 0
    ]
    return selection, find_files_above_delete_ratio(unselected_files, vectors, options)


def get_delete_ratio(options: Options) -> float:
    """Return the share of deleted rows above which a minor compaction rewrites a file."""
    return options.get(COMPACTION_DELETE_RATIO_THRESHOLD, _DELETE_RATIO)


def find_files_above_delete_ratio(
    files: Sequence[DataFileMeta], vectors: DeletionVectorEntries, options: Options
) -> tuple[DataFileMeta, ...]:
    """Return the files whose ratio of deleted rows exceeds ``compaction.delete-ratio-threshold``.

    A deletion vector without a cardinality counts as exceeding it. The default is higher than for
    append tables, because a later merge also drops the deleted rows.
    """
    ratio = get_delete_ratio(options)
    deleted_rows = _deleted_row_counts(vectors)

    def exceeds_ratio(file: DataFileMeta) -> bool:
        count = deleted_rows[file.file_name]
        return count is None or count > file.row_count * ratio

    return tuple(file for file in files if file.file_name in deleted_rows and exceeds_ratio(file))


def _deleted_row_counts(vectors: DeletionVectorEntries) -> dict[str, int | None]:
    """Return the number of deleted rows by file, or None if it is unknown."""
    return {r.data_file: r.cardinality for entry in vectors for r in entry.ranges or ()}
