"""Builds the next snapshot: checks changes against the latest snapshot and writes their manifests.

The snapshot file itself is created by ``table/commit/commit.py``. See docs/format/commit.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from paimon_orch.errors import CommitConflictError, CorruptFileError
from paimon_orch.files.row_tracking import row_tracking_fields
from paimon_orch.format.arrays import Indices
from paimon_orch.format.manifest.columnar_manifest import Manifest
from paimon_orch.format.manifest.index_manifest import IndexManifestEntry, apply_index_changes
from paimon_orch.format.manifest.manifest_entry import FileKind, ManifestEntry
from paimon_orch.format.manifest.manifest_list import ManifestFileMeta
from paimon_orch.format.options.core_options import MANIFEST_FORMAT
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import FIRST_SNAPSHOT_ID, CommitKind, Snapshot
from paimon_orch.safe_text import get_logger
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.commit.conflict_detection import (
    check_bucket_counts,
    check_bucket_guards,
    check_conflicts,
    check_hash_index_guards,
    find_live_entry_per_partition,
)
from paimon_orch.table.commit.global_index_conflicts import check_indexed_columns
from paimon_orch.table.commit.index_sources import (
    find_indexes_of_removed_rows,
    find_stale_index_files,
)
from paimon_orch.table.commit.row_id_assignment import (
    assign_row_ids,
    assign_snapshot_sequence,
    check_row_ids,
)
from paimon_orch.table.commit.row_level_conflicts import check_deletion_vectors
from paimon_orch.table.commit.row_range_conflicts import check_row_ranges
from paimon_orch.table.metadata.manifest_io import ManifestReader, ManifestWriter
from paimon_orch.table.metadata.manifest_merge import ManifestMerger
from paimon_orch.table.metadata.max_sequence_number import build_sequence_properties
from paimon_orch.table.metadata.metadata_io import read_statistics
from paimon_orch.table.metadata.snapshot_store import SnapshotStore
from paimon_orch.table.scan.data_evolution import has_data_evolution
from paimon_orch.table.scan.partition_pruner import build_partition_manifest_selector

logger = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class BuiltSnapshot:
    """A snapshot whose manifests are written, and the entries of its delta."""

    snapshot: Snapshot
    entries: Sequence[ManifestEntry]


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotBuilder:
    """Builds the snapshot after ``latest``, the newest snapshot (None for an empty table)."""

    changes: CommitChanges
    latest: Snapshot | None
    schema: TableSchema
    snapshots: SnapshotStore
    manifests: ManifestReader

    def write(self, writer: ManifestWriter, user: str, millis: int) -> BuiltSnapshot:
        """Write the manifests and return the snapshot.

        Its commit time is ``millis`` (epoch milliseconds), but not before the latest snapshot.
        Raises :class:`CommitConflictError` if the changes conflict with the latest snapshot.
        """
        changes, latest, schema = self.changes, self.latest, self.schema
        self._check_latest()
        if changes.replacement is not None and latest is not None:
            snapshot, entries = changes.replacement.write(latest, schema, self.manifests, writer)
            return BuiltSnapshot(
                replace(
                    snapshot,
                    commit_user=user,
                    commit_identifier=changes.identifier,
                    time_millis=max(millis, latest.time_millis),
                ),
                entries,
            )
        previous_index = self.manifests.read_index_entries(latest)
        entries, index = self._add_overwritten_entries(previous_index)
        index += find_stale_index_files(schema, entries, previous_index, index)
        if changes.kind is CommitKind.COMPACT:
            index += find_indexes_of_removed_rows(schema, entries, previous_index, index)
        snapshot_id = FIRST_SNAPSHOT_ID if latest is None else latest.id + 1
        next_row_id = 0 if latest is None else latest.next_row_id or 0
        entries, next_row_id = assign_row_ids(schema, entries, snapshot_id, next_row_id)
        entries = assign_snapshot_sequence(schema, entries, snapshot_id)
        if changes.reassignment is not None:
            changes.reassignment.check(latest)
            next_row_id = changes.reassignment.next_row_id
        self._check(entries, index, previous_index, next_row_id)
        base_list, base_size = writer.manifest_list(self._write_base_manifests(writer))
        delta_list, delta_size = writer.manifest_list(writer.manifests(entries))
        changelog_list, changelog_size = self._write_changelog(writer)
        delta_rows = sum(_count_signed_rows(entry) for entry in entries)
        snapshot = Snapshot(
            id=snapshot_id,
            schema_id=schema.id,
            base_manifest_list=base_list,
            delta_manifest_list=delta_list,
            commit_user=user,
            commit_identifier=changes.identifier,
            commit_kind=changes.kind,
            time_millis=millis if latest is None else max(millis, latest.time_millis),
            total_record_count=(0 if latest is None else latest.total_record_count) + delta_rows,
            delta_record_count=delta_rows,
            base_manifest_list_size=base_size,
            delta_manifest_list_size=delta_size,
            changelog_manifest_list=changelog_list,
            changelog_manifest_list_size=changelog_size,
            changelog_record_count=sum(entry.file.row_count for entry in changes.changelog)
            if changes.changelog
            else None,
            index_manifest=self._write_index_manifest(writer, previous_index, index),
            watermark=None if latest is None else latest.watermark,
            statistics=self._resolve_statistics(),
            properties=self._build_properties(entries),
            next_row_id=next_row_id,
            additional=latest.inherited if latest is not None and changes.merge_manifests else {},
        )
        return BuiltSnapshot(snapshot, entries)

    def _check_latest(self) -> None:
        expected, latest_id = self.changes.expected_latest, self.latest and self.latest.id
        if expected is not None and latest_id != expected:
            raise CommitConflictError(
                f"{self.snapshots.paths.root}: the newest snapshot is {latest_id}, not {expected} "
                "as when this step was planned. Nothing was changed; plan and run the step again."
            )

    def _write_changelog(self, writer: ManifestWriter) -> tuple[str | None, int | None]:
        """Return the name and size of the changelog manifest list, or None."""
        if not self.changes.changelog:
            return None, None
        return writer.manifest_list(writer.manifests(self.changes.changelog))

    def _build_properties(self, entries: Sequence[ManifestEntry]) -> dict[str, str]:
        """Return the properties; as in Java Paimon, only merges of manifests inherit old ones."""
        latest = self.latest
        inherited = latest.properties if latest is not None and self.changes.merge_manifests else {}
        sequence = build_sequence_properties(
            self.schema.typed_options, latest, entries, self._read_latest_entries
        )
        return {**inherited, **sequence}

    def _read_latest_entries(self) -> list[ManifestEntry]:
        return [] if self.latest is None else self.manifests.read_live_entries(self.latest)

    def _add_overwritten_entries(
        self, index: Sequence[IndexManifestEntry]
    ) -> tuple[list[ManifestEntry], list[IndexManifestEntry]]:
        """Return the entries; for an overwrite, add deletes of the overwritten live files."""
        changes = self.changes
        if changes.overwrite is None:
            return list(changes.entries), list(changes.index)
        live = [] if self.latest is None else self.manifests.read_live_entries(self.latest)
        removed = [e.deleted() for e in live if changes.overwrite(e.partition)]
        dropped = [e.deleted() for e in index if changes.overwrite(e.partition)]
        return [*removed, *changes.entries], [*dropped, *changes.index]

    def _check(
        self,
        entries: Sequence[ManifestEntry],
        index: Sequence[IndexManifestEntry],
        previous_index: Sequence[IndexManifestEntry],
        next_row_id: int,
    ) -> None:
        """Refuse changes that conflict with the latest snapshot."""
        changes, schema = self.changes, self.schema
        check_hash_index_guards(changes.hash_index_guards, previous_index)
        if changes.read_guard is not None:
            changes.read_guard.check(self.latest, self.snapshots, self.manifests)
        if changes.column_guard is not None:
            changes.column_guard.check(self.latest, self.snapshots, self.manifests)
            check_indexed_columns(schema, changes.column_guard, previous_index, index)
        if changes.can_conflict:
            base = self._read_live_entries(self._find_touched_buckets(entries, index))
            live = check_conflicts(schema, changes.kind, base, entries)
            check_bucket_guards(changes.guards, base, previous_index)
            if changes.indexed_rows_guard is not None:
                changes.indexed_rows_guard.check(base, previous_index, index)
            check_deletion_vectors(
                schema, base, delta=entries, previous=previous_index, changes=index
            )
            if has_data_evolution(schema):
                before = 0 if self.latest is None else self.latest.next_row_id or 0
                check_row_ranges(changes.kind, base, entries, live, (before, next_row_id))
            else:
                check_row_ids(schema, live, next_row_id)
        elif any(entry.total_buckets > 0 for entry in entries):
            touched = {entry.partition for entry in entries}
            check_bucket_counts(self._read_entry_per_partition(touched), entries)

    def _read_entry_per_partition(self, partitions: set[bytes]) -> list[ManifestEntry]:
        """Return live entries: at least one for each of the partitions that has live files."""
        if self.latest is None:
            return []
        select = build_partition_manifest_selector(partitions, self.schema)
        newest_first = reversed(select(self.manifests.manifests(self.latest)))
        entries = find_live_entry_per_partition(map(self.manifests.open, newest_first), partitions)
        touched = _TouchedBuckets(frozenset(partitions))
        return self._read_live_entries(touched) if entries is None else entries

    def _find_touched_buckets(
        self, entries: Sequence[ManifestEntry], index: Sequence[IndexManifestEntry]
    ) -> "_TouchedBuckets":
        """Return the buckets whose live entries can conflict with the changes.

        A file in a bucket without a file to delete may have another bucket count than the files in
        other buckets, and row ids are unique in the table. Then these are whole partitions.
        """
        buckets = {entry.partition_bucket for entry in entries}
        buckets |= {guard.bucket for guard in self.changes.guards}
        buckets |= {item.partition_bucket for item in index}
        partitions = frozenset(bucket.partition for bucket in buckets)
        rewritten = {e.partition_bucket for e in entries if e.kind is FileKind.DELETE}
        adds_only_to_rewritten = all(
            e.partition_bucket in rewritten for e in entries if e.kind is FileKind.ADD
        )
        if not adds_only_to_rewritten or row_tracking_fields(self.schema):
            return _TouchedBuckets(partitions)
        return _TouchedBuckets(partitions, frozenset(bucket.bucket for bucket in buckets))

    def _read_live_entries(self, touched: "_TouchedBuckets") -> list[ManifestEntry]:
        """Return the live entries of buckets; reads only manifests that may name them."""
        if self.latest is None:
            return []
        select = build_partition_manifest_selector(touched.partitions, self.schema)
        return self.manifests.read_live_entries(
            self.latest,
            manifests=lambda metas: touched.select_manifests(select(metas)),
            partitions=lambda _: touched.partitions,
            choose=touched.select_rows,
        )

    def _write_base_manifests(self, writer: ManifestWriter) -> list[ManifestFileMeta]:
        """Return the manifests before the changes: merged, or with new row ids."""
        reassignment = self.changes.reassignment
        if reassignment is None:
            return self._merge_manifests(writer)
        assert self.latest is not None
        manifests = self.manifests.manifests(self.latest)
        return reassignment.rewrite_manifests(self.manifests, writer, manifests)

    def _merge_manifests(self, writer: ManifestWriter) -> list[ManifestFileMeta]:
        """Merge small manifests of the latest snapshot; return its manifests."""
        before = [] if self.latest is None else self.manifests.manifests(self.latest)
        options, fully = self.schema.typed_options, self.changes.merge_manifests
        return ManifestMerger(self.manifests, writer, options, force_full=fully).run(before)

    def _write_index_manifest(
        self,
        writer: ManifestWriter,
        before: Sequence[IndexManifestEntry],
        index: Sequence[IndexManifestEntry],
    ) -> str | None:
        if self.changes.reassignment is not None:
            reassigned = self.changes.reassignment.rewrite_index(before)
            return writer.index_manifest(reassigned) if before else None
        if not index and not self._has_index_manifest_of_other_format():
            return None if self.latest is None else self.latest.index_manifest
        bucketed = not self.schema.is_bucket_unaware
        return writer.index_manifest(apply_index_changes(before, index, bucketed=bucketed))

    def _has_index_manifest_of_other_format(self) -> bool:
        """Return whether a merge of manifests must write the index manifest again."""
        name = None if self.latest is None else self.latest.index_manifest
        if name is None or not self.changes.merge_manifests:
            return False
        return self.manifests.find_format(name) != self.schema.typed_options.get(MANIFEST_FORMAT)

    def _resolve_statistics(self) -> str | None:
        """Return the new statistics file, by default the old one if it has the current schema."""
        new, old = self.changes.statistics, None if self.latest is None else self.latest.statistics
        if new is None:
            return old if old is not None and self._matches_schema(old) else None
        if not self._matches_schema(new):
            raise CommitConflictError(
                f"{self.snapshots.paths.root}: the schema was changed while statistics were "
                "computed. Nothing was changed; analyze again."
            )
        return new

    def _matches_schema(self, name: str) -> bool:
        try:
            statistics = read_statistics(self.snapshots.io, self.snapshots.paths, name)
            return statistics.schema_id == self.schema.id
        except (FileNotFoundError, CorruptFileError) as error:
            logger.warning("the new snapshot has no statistics: %s", error)
            return False


@dataclass(frozen=True, slots=True)
class _TouchedBuckets:
    """Some buckets of some partitions; all buckets if ``buckets`` is None."""

    partitions: frozenset[bytes]
    buckets: frozenset[int] | None = None

    def select_manifests(self, metas: Sequence[ManifestFileMeta]) -> list[ManifestFileMeta]:
        """Return the manifests that may name the buckets, by their bucket statistics."""
        return [meta for meta in metas if self._may_name(meta)]

    def _may_name(self, meta: ManifestFileMeta) -> bool:
        if self.buckets is None or meta.min_bucket is None or meta.max_bucket is None:
            return True
        return any(meta.min_bucket <= bucket <= meta.max_bucket for bucket in self.buckets)

    def select_rows(self, manifest: Manifest, rows: Indices) -> Indices:
        """Return the rows of the buckets."""
        if self.buckets is None:
            return rows
        selected: Indices = rows[np.isin(manifest.buckets[rows], list(self.buckets))]
        return selected


def _count_signed_rows(entry: ManifestEntry) -> int:
    return entry.file.row_count if entry.kind is FileKind.ADD else -entry.file.row_count
