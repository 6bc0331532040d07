"""Commits that replace the state of a table: by that of an older snapshot, or without manifests.

See docs/format/rollback.md#rollback-procedures and
docs/format/orphan-files.md#removing-lost-manifests.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from paimon_orch.format.manifest.manifest_entry import FileKind, ManifestEntry
from paimon_orch.format.manifest.manifest_list import ManifestFileMeta
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.table.metadata.manifest_io import ManifestReader, ManifestWriter
from paimon_orch.table.metadata.manifest_merge import ManifestMerger
from paimon_orch.table.scan.partition_pruner import build_partition_manifest_selector


@dataclass(frozen=True, slots=True)
class StateReplacement:
    """The next state of a table; the commit has no other changes."""

    target: Snapshot
    """The snapshot whose state to commit again; with lost manifests, the newest snapshot."""
    lost_manifests: frozenset[str] = field(default=frozenset(), kw_only=True)
    """The names of manifests of the newest snapshot that do not exist.

    The commit must require that this snapshot is still the newest one.
    """

    def write(
        self, latest: Snapshot, schema: TableSchema, reader: ManifestReader, writer: ManifestWriter
    ) -> tuple[Snapshot, Sequence[ManifestEntry]]:
        """Write the manifests of the next state; return its snapshot and the changed entries.

        The user, the identifier and the time of the snapshot are those of ``target``; the caller
        sets them.
        """
        target = self.target
        if self.lost_manifests:
            metas = reader.manifests(latest)
            base = [meta for meta in metas if meta.file_name not in self.lost_manifests]
            delta: list[ManifestEntry] = []
            total_rows = int(reader.read_live_files(latest, manifests=base).row_counts.sum())
        else:
            delta = compute_difference(reader, schema, latest, target)
            base = drop_deleted_entries(reader, writer, latest, schema)
            total_rows = target.total_record_count
        base_list, base_size = writer.manifest_list(base)
        delta_list, delta_size = writer.manifest_list(writer.manifests(delta))
        row_ids = [
            number for number in (latest.next_row_id, target.next_row_id) if number is not None
        ]
        snapshot = replace(
            target,
            id=latest.id + 1,
            base_manifest_list=base_list,
            base_manifest_list_size=base_size,
            delta_manifest_list=delta_list,
            delta_manifest_list_size=delta_size,
            changelog_manifest_list=None,
            changelog_manifest_list_size=None,
            changelog_record_count=None,
            commit_kind=CommitKind.OVERWRITE,
            total_record_count=total_rows,
            delta_record_count=sum(
                entry.file.row_count * (1 if entry.kind is FileKind.ADD else -1) for entry in delta
            ),
            next_row_id=max(row_ids, default=None),
            additional=target.inherited,
        )
        return snapshot, delta


def compute_difference(
    reader: ManifestReader, schema: TableSchema, before: Snapshot, after: Snapshot
) -> list[ManifestEntry]:
    """Return the entries that turn the live files of a snapshot into those of another.

    Reads the manifests that only one of them has, and those that may name files of their
    partitions.
    """
    old, new = reader.manifests(before), reader.manifests(after)
    common = {meta.file_name for meta in old} & {meta.file_name for meta in new}
    different = [meta for meta in (*old, *new) if meta.file_name not in common]
    touched = {entry.partition for entry in reader.entries(different)}
    select = build_partition_manifest_selector(touched, schema)

    def read(snapshot: Snapshot) -> dict[tuple[object, ...], ManifestEntry]:
        entries = reader.read_live_entries(snapshot, manifests=select, partitions=lambda _: touched)
        return {entry.identity: entry for entry in entries}

    old_entries, new_entries = read(before), read(after)
    removed = (entry.deleted() for key, entry in old_entries.items() if key not in new_entries)
    added = (entry for key, entry in new_entries.items() if key not in old_entries)
    return [*removed, *added]


def find_moved_files(entries: Iterable[ManifestEntry]) -> list[ManifestEntry]:
    """Return the added entries of files that are deleted and added, on another level."""
    entries = list(entries)
    deleted = {entry.file.file_name for entry in entries if entry.kind is FileKind.DELETE}
    return [e for e in entries if e.kind is FileKind.ADD and e.file.file_name in deleted]


def drop_deleted_entries(
    reader: ManifestReader, writer: ManifestWriter, latest: Snapshot, schema: TableSchema
) -> list[ManifestFileMeta]:
    """Return the manifests of the live files without a DELETE entry.

    A file that is added again must have none, because readers leave it out. A compaction adds files
    again that a rollback as latest has put back to the level of an older snapshot.
    """
    merger = ManifestMerger(reader, writer, schema.typed_options, force_full=True)
    merged = merger.run(reader.manifests(latest))
    if any(meta.num_deleted_files for meta in merged):
        return writer.manifests(reader.read_live_entries(latest))
    return merged
