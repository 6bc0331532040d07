"""Taking data files that were lost out of a table, so that the rest can be read again.

See docs/format/orphan-files.md#removing-lost-files.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.manifest.index_manifest import DELETION_VECTORS_INDEX, IndexManifestEntry
from paimon_orch.format.manifest.manifest_entry import ManifestEntry
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.merge.compact.bucket_deletion_vectors import (
    BucketDeletionVectors,
    read_deletion_vectors,
)
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.table import Table


@dataclass(frozen=True, slots=True)
class MissingFilesPlan:
    """The live data files that do not exist. Also the dry run."""

    paths: tuple[str, ...] = ()
    entries: tuple[ManifestEntry, ...] = ()

    def __bool__(self) -> bool:
        """Tell whether anything is lost."""
        return bool(self.paths)

    @property
    def rows(self) -> int:
        """Return the physical rows that are lost with the files."""
        return sum(entry.file.row_count for entry in self.entries)

    def to_dict(self) -> dict[str, object]:
        """Return the report as JSON values."""
        return {"files": len(self.paths), "rows": self.rows, "paths": list(self.paths)}


def plan(table: Table) -> MissingFilesPlan:
    """Look for every live data file of the newest snapshot, level 0 included."""
    table.stores.check_step(StepKind.DELETE)
    snapshot = table.stores.snapshots.latest()
    if snapshot is None:
        return MissingFilesPlan()
    schema = table.schema
    listed: dict[str, set[str]] = {}
    paths, entries = [], []
    for entry in table.stores.manifests.live(snapshot):
        path = table.paths.data_file(schema, entry.partition, entry.bucket, entry.file)
        directory, _, name = path.rpartition("/")
        if directory not in listed:
            listed[directory] = {info.name for info in table.io.list_dir(directory)}
        # a listing may lag behind, or not be allowed: nothing is taken out because of it alone
        if name not in listed[directory] and not table.io.exists(path):
            paths.append(path)
            entries.append(entry)
    return MissingFilesPlan(tuple(paths), tuple(entries))


def commit(table: Table, lost: MissingFilesPlan) -> Snapshot | None:
    """Delete the files from the table in one snapshot, with the vectors that hide rows of them."""
    if not lost:
        return None
    index = _rewrite_deletion_vectors(table, {entry.file.file_name for entry in lost.entries})
    entries = tuple(entry.deleted() for entry in lost.entries)
    changes = CommitChanges(kind=CommitKind.OVERWRITE, entries=entries, index=tuple(index))
    return table.stores.new_commit(StepKind.DELETE).commit(changes)


def _rewrite_deletion_vectors(table: Table, names: set[str]) -> Iterable[IndexManifestEntry]:
    """Yield new index files for those that have vectors of the lost files."""
    schema = table.schema
    index = table.stores.manifests.read_index_entries(table.stores.snapshots.latest())
    touched: dict[PartitionBucket, list[IndexManifestEntry]] = {}
    for item in index:
        if item.index_type == DELETION_VECTORS_INDEX:
            touched.setdefault(item.partition_bucket, []).append(item)
    for at, items in touched.items():
        if not any(r.data_file in names for item in items for r in item.ranges or ()):
            continue
        vectors = BucketDeletionVectors(read_deletion_vectors(table.io, table.paths, schema, items))
        for name in names:
            vectors.drop(name)
        written = vectors.write(table.io, table.paths, schema, *at)
        if written is not None:
            if not schema.primary_keys:
                yield from (item.deleted() for item in items)
            yield written


def remove_unexisting_files(table: Table) -> MissingFilesPlan:
    """Plan and commit; return what was lost."""
    lost = plan(table)
    commit(table, lost)
    return lost
