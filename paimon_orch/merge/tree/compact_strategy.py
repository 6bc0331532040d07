"""What a compaction of one bucket works on: runs to merge, and files to rewrite each by itself."""

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
    select_minor_compaction,
)

CompactionSelection = tuple[RunSelection, tuple[DataFileMeta, ...]]
DeletionVectorEntries = Sequence[IndexManifestEntry]

_DELETE_RATIO = 0.5
"""The default for tables with a primary key; append tables have the lower one of the register."""


def plan_full_compaction(
    reader: FileReader,
    runs: Sequence[SortedRun],
    vectors: DeletionVectorEntries,
    num_levels: int,
    now: datetime,
) -> CompactionSelection:
    """Choose everything; if that is one run on the highest level already, only what is worth a rewrite (2.8)."""
    top = num_levels - 1
    everything = select_full_compaction(num_levels, runs)
    if everything is not None and (len(runs) > 1 or runs[0].level < top):
        return everything, ()
    expiry = RecordLevelExpire.of(reader.schema, int(now.timestamp()))
    hidden = _deleted_row_counts(vectors)
    forced = reader.schema.typed_options.get(COMPACTION_FORCE_REWRITE_ALL_FILES)
    stale = tuple(
        file
        for run in runs
        for file in run.files
        if forced
        or file.file_name in hidden
        or (expiry is not None and expiry.touches(file, reader.schemas))
    )
    return RunSelection(0, top, CompactReason.DELETED_OR_EXPIRED_ROWS), stale


def plan_minor_compaction(
    options: Options,
    runs: Sequence[SortedRun],
    vectors: DeletionVectorEntries,
    num_levels: int,
    now: datetime,
) -> CompactionSelection:
    """Choose as the table's options say, and the files above whose rows are mostly hidden."""
    found = select_minor_compaction(options, now.replace(tzinfo=None), num_levels, runs)
    found = found or RunSelection(0, num_levels - 1, CompactReason.DELETED_ROWS)
    above = [file for run in runs[found.count :] for file in run.files if file.level > 0]
    return found, find_files_above_delete_ratio(above, vectors, options)


def find_files_above_delete_ratio(
    files: Sequence[DataFileMeta], vectors: DeletionVectorEntries, options: Options
) -> tuple[DataFileMeta, ...]:
    """Return the files of which deletion vectors hide more than ``compaction.delete-ratio-threshold`` (0.5) of the rows.

    A vector that does not tell how many rows it hides counts as one that hides too many. The option is that of append
    tables, whose default is lower: there a rewrite has no merge to come that would do the same.
    """
    ratio = options.get(COMPACTION_DELETE_RATIO_THRESHOLD, _DELETE_RATIO)
    hidden = _deleted_row_counts(vectors)

    def is_hollow(file: DataFileMeta) -> bool:
        count = hidden[file.file_name]
        return count is None or count > file.row_count * ratio

    return tuple(file for file in files if file.file_name in hidden and is_hollow(file))


def _deleted_row_counts(vectors: DeletionVectorEntries) -> dict[str, int | None]:
    """Return how many rows of each file are hidden, None where that is not told."""
    return {r.data_file: r.cardinality for entry in vectors for r in entry.ranges or ()}
