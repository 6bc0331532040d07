"""Deletes rows of keys that are live in several files of a table with deletion vectors.

Readers of such tables do not merge files above level 0, so they see all of these rows. The newest
row of a key remains; the others get deletion vectors, and are put into the quarantine. Data files
are not rewritten. See docs/format/invariants.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from paimon_orch.errors import UnsupportedError
from paimon_orch.files.data_file_reader import FileReader
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.deletion_vector import DeletionVector
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.merge.compact.bucket_deletion_vectors import (
    BucketDeletionVectors,
    read_deletion_vectors,
)
from paimon_orch.merge.tree.levels import build_bucket_runs
from paimon_orch.steps.cleanup.quarantine import Quarantine
from paimon_orch.steps.common.conflict_retry import discard_files_on_conflict
from paimon_orch.steps.common.partition_selection import open_reader
from paimon_orch.steps.common.step import EmptyRequest, StepOutcome, build_metadata_step
from paimon_orch.steps.inspection.health import read_live_buckets
from paimon_orch.steps.repairs.replaced_rows import ReplacedRows, put_rows_aside
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.scan.bucket_split import BucketSplit
from paimon_orch.table.table import Table
from paimon_orch.table.write.commit_message import CommitMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketDuplicates:
    """The duplicate rows of a bucket."""

    split: BucketSplit
    rows: ReplacedRows
    positions: dict[str, DeletionVector]
    """The rows to delete, by data file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicateKeysPlan:
    """The rows of keys with a newer row. The plan is falsy if there are none."""

    request: EmptyRequest = field(default_factory=EmptyRequest)
    snapshot: Snapshot | None = None
    buckets: tuple[BucketDuplicates, ...] = ()

    def __bool__(self) -> bool:
        """Return whether any key is live in several files."""
        return bool(self.buckets)

    @property
    def row_count(self) -> int:
        """Return the number of rows to delete."""
        return sum(v.cardinality for bucket in self.buckets for v in bucket.positions.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicateKeysResult(StepOutcome):
    """The new snapshot, or None if there was nothing to do."""

    plan: DuplicateKeysPlan
    snapshot: Snapshot | None = None


def plan(table: Table, request: EmptyRequest) -> DuplicateKeysPlan:
    """Read the keys of all files above level 0 of the latest snapshot, and find duplicates.

    Raises :class:`CorruptFileError` if files of a level overlap: these are merged before.
    """
    schema, snapshot = table.schema, table.stores.snapshots.latest()
    if not schema.primary_keys or not schema.typed_options.has_deletion_vectors:
        raise UnsupportedError(
            f"{table.identifier}: readers merge the rows of a key, as the table has no deletion "
            "vectors; keys in several files are no damage"
        )
    table.stores.check_step(StepKind.COMPACT)
    if snapshot is None:
        return DuplicateKeysPlan(request=request)
    splits = [s for s in read_live_buckets(table, snapshot).build_splits() if s.bucket >= 0]
    reader = open_reader(table, schema, splits)
    found = (_find_duplicates(reader, split) for split in splits)
    return DuplicateKeysPlan(
        request=request,
        snapshot=snapshot,
        buckets=tuple(duplicates for duplicates in found if duplicates.positions),
    )


def _find_duplicates(reader: FileReader, split: BucketSplit) -> BucketDuplicates:
    build_bucket_runs(split.files, reader.schema)
    files = [file for file in split.files if file.level > 0]
    vectors = read_deletion_vectors(reader.io, reader.paths, reader.schema, split.vectors)
    rows = ReplacedRows(reader, split.partition_bucket, files, vectors)
    positions = rows.find_positions() if len(files) > 1 else {}
    return BucketDuplicates(split=split, rows=rows, positions=positions)


def commit(
    table: Table, plan: DuplicateKeysPlan, _results: Sequence[bytes] = ()
) -> DuplicateKeysResult:
    """Put the rows aside, and commit deletion vectors for them in one snapshot."""
    if not plan or plan.snapshot is None:
        return DuplicateKeysResult(plan=plan)
    folder, schema = Quarantine.of(table).build_folder_name(), table.schema
    written = []
    for bucket in plan.buckets:
        name = f"{_get_directory(table, bucket.split.partition_bucket)}/duplicates.parquet"
        put_rows_aside(table, folder, name, bucket.rows.find())
        vectors = BucketDeletionVectors(dict(bucket.rows.deletions))
        vectors.add(bucket.positions)
        written.append(vectors.write(table.io, table.paths, schema, *bucket.split.partition_bucket))
    changes = CommitChanges(
        kind=CommitKind.COMPACT,
        index=tuple(entry for entry in written if entry is not None),
        expected_latest=plan.snapshot.id,
    )
    with discard_files_on_conflict(table, [CommitMessage(index=changes.index)]):
        snapshot = table.stores.new_commit(StepKind.COMPACT).commit(changes)
    return DuplicateKeysResult(plan=plan, snapshot=snapshot)


def _get_directory(table: Table, bucket: PartitionBucket) -> str:
    directory = table.paths.bucket_dir(table.schema, *bucket)
    return directory.removeprefix(f"{table.paths.root}/")


DELETE_DUPLICATE_KEYS = build_metadata_step(
    "delete the duplicate keys of", plan, commit, max_attempts=1
)
