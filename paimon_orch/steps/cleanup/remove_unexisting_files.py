"""Removes missing data files from the metadata, so that the other files can be read.

See docs/format/orphan-files.md#removing-lost-files.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from paimon_orch.errors import InputError
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
from paimon_orch.storage.base import FileInfo, FileIO
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
    """Find live data files of the latest snapshot that do not exist, including level 0.

    Raises :class:`InputError` if one of them is in another directory, or has a longer name.
    """
    table.stores.check_step(StepKind.DELETE)
    schema = table.schema
    refuse_chain_table(
        table.identifier, schema, "the removal of missing files", "drop the partitions instead"
    )
    entries = find_missing_files(table)
    _refuse_moved_files(table, entries)
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


def _refuse_moved_files(table: Table, missing: Mapping[str, ManifestEntry]) -> None:
    """Search missing files in the directories of all partitions and buckets.

    Another writer may have named a directory in another way, or a copy may be incomplete.
    """
    levels = len(table.schema.partition_keys) + 2  # the bucket and the file are levels, too
    expected = {path.rpartition("/")[2]: path for path in missing}
    indexes = {name for entry in missing.values() for name in entry.file.extra_files}
    for root in dict.fromkeys(path.rsplit("/", levels)[0] for path in missing):
        for info in _list_data_files(table.io, root, levels - 1):
            name = info.name if info.name in expected else ""
            if not name and info.name not in indexes:
                name = next((other for other in expected if other in info.name), "")
            if name and info.path != expected[name]:
                raise InputError(
                    f"{table.identifier}: {expected[name]} is missing, but {info.path} exists. Move "
                    "it to that place, or delete it if it is another file, and repeat the step. "
                    "Nothing was changed"
                )


def _list_data_files(io: FileIO, directory: str, levels: int) -> Iterator[FileInfo]:
    for info in io.list_dir(directory):
        is_inner = "=" in info.name or info.name.startswith("bucket-")
        if levels and info.is_dir and is_inner:
            yield from _list_data_files(io, info.path, levels - 1)
        elif not info.is_dir:
            yield info


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
