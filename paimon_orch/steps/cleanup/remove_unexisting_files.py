"""Removes missing data files from the metadata, so that the other files can be read.

See docs/format/orphan-files.md#removing-lost-files.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.display import Displayable
from paimon_orch.format.manifest.index_manifest import DELETION_VECTORS_INDEX, IndexManifestEntry
from paimon_orch.format.manifest.manifest_entry import ManifestEntry
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.merge.compact.bucket_deletion_vectors import (
    BucketDeletionVectors,
    read_deletion_vectors,
)
from paimon_orch.steps.common.step import (
    EmptyRequest,
    StepOutcome,
    build_metadata_step,
    run_step,
)
from paimon_orch.table.chain.chain_branches import refuse_chain_table
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingFilesPlan(Displayable):
    """The live data files that do not exist. The plan is falsy if there are none."""

    request: EmptyRequest = field(default_factory=EmptyRequest)
    paths: tuple[str, ...] = ()
    entries: tuple[ManifestEntry, ...] = ()

    def __bool__(self) -> bool:
        """Return whether any file is missing."""
        return bool(self.paths)

    @property
    def rows(self) -> int:
        """Return the number of physical rows of the missing files."""
        return sum(entry.file.row_count for entry in self.entries)

    def to_dict(self) -> dict[str, object]:
        """Return the report as JSON values."""
        return {"files": len(self.paths), "rows": self.rows, "paths": list(self.paths)}


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingFilesResult(StepOutcome):
    """The result of the step; ``snapshot`` is None if no file was missing."""

    plan: MissingFilesPlan
    snapshot: Snapshot | None = None


def plan(table: Table, request: EmptyRequest) -> MissingFilesPlan:
    """Find live data files of the latest snapshot that do not exist, including level 0."""
    table.stores.check_step(StepKind.DELETE)
    schema = table.schema
    refuse_chain_table(
        table.identifier, schema, "the removal of missing files", "drop the partitions instead"
    )
    entries = find_missing_files(table)
    return MissingFilesPlan(request=request, paths=tuple(entries), entries=tuple(entries.values()))


def find_missing_files(table: Table) -> dict[str, ManifestEntry]:
    """Return the live data files of the latest snapshot that do not exist, by path."""
    snapshot = table.stores.snapshots.latest()
    missing = dict[str, ManifestEntry]()
    if snapshot is None:
        return missing
    listed: dict[str, set[str]] = {}
    for entry in table.stores.manifests.read_live_entries(snapshot):
        path = table.paths.data_file(table.schema, entry.partition, entry.bucket, entry.file)
        directory, _, name = path.rpartition("/")
        if directory not in listed:
            listed[directory] = {info.name for info in table.io.list_dir(directory)}
        # A listing may be outdated or not permitted, so each file is also checked.
        if name not in listed[directory] and not table.io.exists(path):
            missing[path] = entry
    return missing


def commit(
    table: Table, plan: MissingFilesPlan, _results: Sequence[bytes] = ()
) -> MissingFilesResult:
    """Remove the files and their deletion vectors from the table in one snapshot."""
    if not plan:
        return MissingFilesResult(plan=plan)
    index = rewrite_deletion_vectors(table, {entry.file.file_name for entry in plan.entries})
    entries = tuple(entry.deleted() for entry in plan.entries)
    changes = CommitChanges(kind=CommitKind.OVERWRITE, entries=entries, index=tuple(index))
    snapshot = table.stores.new_commit(StepKind.DELETE).commit(changes)
    return MissingFilesResult(plan=plan, snapshot=snapshot)


def rewrite_deletion_vectors(table: Table, names: set[str]) -> Iterable[IndexManifestEntry]:
    """Yield the index entries of buckets without the deletion vectors of some files."""
    schema = table.schema
    index = table.stores.manifests.read_index_entries(table.stores.snapshots.latest())
    items_by_bucket: dict[PartitionBucket, list[IndexManifestEntry]] = {}
    for item in index:
        if item.index_type == DELETION_VECTORS_INDEX:
            items_by_bucket.setdefault(item.partition_bucket, []).append(item)
    for partition_bucket, items in items_by_bucket.items():
        if not any(r.data_file in names for item in items for r in item.ranges or ()):
            continue
        vectors = BucketDeletionVectors(read_deletion_vectors(table.io, table.paths, schema, items))
        for name in names:
            vectors.drop(name)
        written = vectors.write(table.io, table.paths, schema, *partition_bucket)
        if written is not None:
            if not schema.primary_keys:
                yield from (item.deleted() for item in items)
            yield written


REMOVE_UNEXISTING_FILES = build_metadata_step(
    "remove missing files of", plan, commit, max_attempts=1
)


def remove_unexisting_files(table: Table) -> MissingFilesPlan:
    """Remove missing data files from the metadata in one snapshot; return the removed files."""
    return run_step(REMOVE_UNEXISTING_FILES, table, plan(table, EmptyRequest())).plan
