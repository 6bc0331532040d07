"""Removes missing data files from the metadata, so that the other files can be read.

See docs/format/orphan-files.md#removing-lost-files.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from paimon_orch.errors import InputError
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.display import Displayable, format_count
from paimon_orch.format.manifest.index_manifest import DELETION_VECTORS_INDEX, IndexManifestEntry
from paimon_orch.format.manifest.manifest_entry import DataFileMeta, ManifestEntry
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.merge.compact.bucket_deletion_vectors import (
    BucketDeletionVectors,
    read_deletion_vectors,
)
from paimon_orch.merge.sort.key_order import decode_key_bounds
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
    older_rows: int = 0
    """The number of physical rows of older files that may have the same keys.

    Their values, which the missing files have replaced or deleted, become visible again.
    """

    def __bool__(self) -> bool:
        """Return whether any file is missing."""
        return bool(self.paths)

    @property
    def rows(self) -> int:
        """Return the number of physical rows of the missing files."""
        return sum(entry.file.row_count for entry in self.entries)

    def to_dict(self) -> dict[str, object]:
        """Return the report as JSON values."""
        return {
            "files": len(self.paths),
            "rows": self.rows,
            "older_rows": self.older_rows,
            "paths": list(self.paths),
        }

    def describe_loss(self) -> str:
        """Say what is lost, and which older values become visible."""
        lost = f"{format_count(self.rows, 'row')} of them {'is' if self.rows == 1 else 'are'} lost"
        if not self.older_rows:
            return lost
        return (
            f"{lost}, and older values of the same keys become visible again: other files have "
            f"{format_count(self.older_rows, 'row')} in the same key ranges"
        )


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
    missing = tuple(entries.values())
    return MissingFilesPlan(
        request=request,
        paths=tuple(entries),
        entries=missing,
        older_rows=_count_older_rows(table, missing) if schema.primary_keys else 0,
    )


def _count_older_rows(table: Table, missing: Sequence[ManifestEntry]) -> int:
    """Count the rows of older files whose key ranges overlap with those of missing files."""
    fields = table.schema.key_fields
    by_bucket: dict[PartitionBucket, list[DataFileMeta]] = {}
    for entry in missing:
        by_bucket.setdefault(PartitionBucket(entry.partition, entry.bucket), []).append(entry.file)
    rows = 0
    for split in table.files() if by_bucket else ():
        lost = by_bucket.get(split.partition_bucket, [])
        names = {file.file_name for file in lost}
        ranges = [(file, *decode_key_bounds(file, fields)) for file in lost]
        for file in (file for file in split.files if ranges and file.file_name not in names):
            low, high = decode_key_bounds(file, fields)
            rows += file.row_count * any(
                low <= end and start <= high
                for newer, start, end in ranges
                if file.max_sequence_number < newer.max_sequence_number
            )
    return rows


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
