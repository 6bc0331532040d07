"""Builds the next snapshot: checks changes against the latest snapshot and writes their manifests.

The snapshot file itself is created by ``table/commit/commit.py``. See docs/format/commit.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from paimon_orch.errors import CommitConflictError, CorruptFileError
from paimon_orch.files.row_tracking import row_tracking_fields
from paimon_orch.format.manifest.index_manifest import IndexManifestEntry, apply_index_changes
from paimon_orch.format.manifest.live_entries import DeletedFiles
from paimon_orch.format.manifest.manifest_entry import FileKind, ManifestEntry
from paimon_orch.format.manifest.manifest_list import ManifestFileMeta
from paimon_orch.format.options.core_options import MANIFEST_FORMAT
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import FIRST_SNAPSHOT_ID, Snapshot
from paimon_orch.safe_text import get_logger
from paimon_orch.table.commit.commit_base import CommitBase, TouchedBuckets, apply_changes
from paimon_orch.table.commit.commit_changes import CommitChanges, PartitionFilter
from paimon_orch.table.commit.conflict_detection import (
    check_bucket_counts,
    check_bucket_guards,
    check_conflicts,
    check_hash_index_guards,
    find_live_entry_per_partition,
)
from paimon_orch.table.commit.global_index_conflicts import check_indexed_columns
from paimon_orch.table.commit.kind_conflicts import CommitDelta, find_conflicts
from paimon_orch.table.commit.row_id_assignment import (
    assign_row_ids,
    assign_snapshot_sequence,
    refuse_unassigned_row_ids,
)
from paimon_orch.table.commit.state_replacement import (
    StateReplacement,
    drop_deleted_entries,
    find_moved_files,
)
from paimon_orch.table.metadata.manifest_io import ManifestReader, ManifestWriter
from paimon_orch.table.metadata.manifest_merge import ManifestMerger
from paimon_orch.table.metadata.max_sequence_number import build_sequence_properties
from paimon_orch.table.metadata.metadata_io import read_statistics
from paimon_orch.table.metadata.snapshot_store import SnapshotStore
from paimon_orch.table.scan.partition_pruner import build_partition_manifest_selector

logger = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class BuiltSnapshot:
    """A snapshot whose manifests are written, and the entries of its delta."""

    snapshot: Snapshot
    entries: Sequence[ManifestEntry]


@dataclass(slots=True, kw_only=True)
class _Written:
    """The manifests of the previous attempt, with what they were made from."""

    before: Sequence[ManifestFileMeta]
    base: Sequence[ManifestFileMeta]
    """``before`` after merging, or with new row ids."""
    entries: Sequence[ManifestEntry]
    delta: Sequence[ManifestFileMeta]
    delta_list: tuple[str, int]
    changelog: Sequence[ManifestFileMeta]
    changelog_list: tuple[str | None, int | None]
    index_before: str | None
    index_changes: Sequence[IndexManifestEntry]
    index_manifest: str | None

    def list_names(self) -> set[str]:
        """Return the names of the files that stand."""
        metas = (*self.base, *self.delta, *self.changelog)
        lists = (self.delta_list[0], self.changelog_list[0], self.index_manifest)
        return {*(meta.file_name for meta in metas), *(name for name in lists if name is not None)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checked:
    """What the previous attempt has checked without a conflict."""

    inputs: tuple[object, ...]
    """The inputs apart from the live files."""
    touched: TouchedBuckets
    live: Sequence[ManifestEntry] | None
    """The live entries of the touched buckets, if these were read."""


@dataclass(slots=True, kw_only=True)
class SnapshotBuilder:
    """Builds the snapshots of the attempts of one commit.

    An attempt keeps the manifests of the previous one that are made from the same inputs, and
    checks only what has changed since then.
    """

    changes: CommitChanges
    snapshots: SnapshotStore
    writer: ManifestWriter
    user: str
    _base: CommitBase = field(init=False)
    """The newest snapshot and schema at the start of the attempt."""
    _written: _Written | None = field(default=None, init=False)
    _checked: _Checked | None = field(default=None, init=False)
    _removed: Sequence[ManifestEntry] = field(default=(), init=False)
    """The live files that an overwrite removes."""
    _matches: dict[tuple[str, int], bool] = field(default_factory=dict, init=False)
    """Whether statistics files have a schema."""

    @property
    def _latest(self) -> Snapshot | None:
        return self._base.snapshot

    @property
    def _schema(self) -> TableSchema:
        return self._base.schema

    @property
    def _reader(self) -> ManifestReader:
        return self._base.reader

    def build(self, base: CommitBase, millis: int) -> BuiltSnapshot:
        """Return the snapshot after a base; the caller flushes its manifests.

        Its commit time is ``millis`` (epoch milliseconds), but not before the latest snapshot.
        Raises :class:`CommitConflictError` if the changes conflict with the latest snapshot.
        """
        self._base = base
        changes, latest, schema = self.changes, base.snapshot, base.schema
        if self.writer.schema.id != schema.id:
            self.writer = self.writer.with_schema(schema)
            self._written = self._checked = None
        self._check_latest()
        if changes.replacement is not None and latest is not None:
            return self._build_replacement(changes.replacement, latest, millis)
        entries, index = self._add_overwritten_entries()
        conflicts = find_conflicts(schema)
        index += conflicts.find_stale_indexes(changes.kind, entries, base.index, index)
        snapshot_id = FIRST_SNAPSHOT_ID if latest is None else latest.id + 1
        entries, next_row_id = self._assign_numbers(entries, snapshot_id)
        self._check(entries, index, next_row_id)
        written = self._write(entries, index)
        base_list, base_size = self.writer.manifest_list(written.base)
        delta_rows = sum(
            entry.file.row_count if entry.kind is FileKind.ADD else -entry.file.row_count
            for entry in entries
        )
        snapshot = Snapshot(
            id=snapshot_id,
            schema_id=schema.id,
            base_manifest_list=base_list,
            delta_manifest_list=written.delta_list[0],
            commit_user=self.user,
            commit_identifier=changes.identifier,
            commit_kind=changes.kind,
            time_millis=millis if latest is None else max(millis, latest.time_millis),
            total_record_count=(0 if latest is None else latest.total_record_count) + delta_rows,
            delta_record_count=delta_rows,
            base_manifest_list_size=base_size,
            delta_manifest_list_size=written.delta_list[1],
            changelog_manifest_list=written.changelog_list[0],
            changelog_manifest_list_size=written.changelog_list[1],
            changelog_record_count=changes.changelog_rows,
            index_manifest=written.index_manifest,
            watermark=None if latest is None else latest.watermark,
            statistics=self._resolve_statistics(),
            properties=self._build_properties(entries),
            next_row_id=next_row_id,
            additional=latest.inherited if latest is not None and changes.merge_manifests else {},
        )
        return BuiltSnapshot(snapshot, entries)

    def _assign_numbers(
        self, entries: Sequence[ManifestEntry], snapshot_id: int
    ) -> tuple[list[ManifestEntry], int]:
        """Return the entries with row ids and sequence numbers, and the next row id."""
        latest, schema, reassignment = self._latest, self._schema, self.changes.reassignment
        next_row_id = 0 if latest is None else latest.next_row_id or 0
        last_ids = ((manifest.file_name, manifest.max_row_id) for manifest in self._base.manifests)
        refuse_unassigned_row_ids(last_ids, next_row_id)
        entries, next_row_id = assign_row_ids(schema, entries, snapshot_id, next_row_id)
        if reassignment is not None:
            reassignment.check(latest)
            next_row_id = reassignment.next_row_id
        return assign_snapshot_sequence(schema, entries, snapshot_id), next_row_id

    def _build_replacement(
        self, replacement: StateReplacement, latest: Snapshot, millis: int
    ) -> BuiltSnapshot:
        self.writer.keep_only(())
        snapshot, entries = replacement.write(latest, self._schema, self._reader, self.writer)
        completed = replace(
            snapshot,
            commit_user=self.user,
            commit_identifier=self.changes.identifier,
            time_millis=max(millis, latest.time_millis),
        )
        return BuiltSnapshot(completed, entries)

    def _check_latest(self) -> None:
        expected, latest_id = self.changes.expected_latest, self._latest and self._latest.id
        if expected is not None and latest_id != expected:
            raise CommitConflictError(
                f"{self.snapshots.paths.root}: the newest snapshot is {latest_id}, not {expected} "
                "as when this step was planned. Nothing was changed; plan and run the step again."
            )

    def _write(
        self, entries: Sequence[ManifestEntry], index: Sequence[IndexManifestEntry]
    ) -> _Written:
        """Add the manifests to the writer; keep those of the previous attempt that stand."""
        old, writer, base = self._written, self.writer, self._base
        if old is not None and old.entries == entries:
            entries, delta, delta_list = old.entries, old.delta, old.delta_list
        else:
            delta = writer.manifests(entries)
            delta_list = writer.manifest_list(delta)
        changelog: Sequence[ManifestFileMeta] = ()
        changelog_list: tuple[str | None, int | None] = (None, None)
        if old is not None:
            changelog, changelog_list = old.changelog, old.changelog_list
        elif self.changes.changelog:
            changelog = writer.manifests(self.changes.changelog)
            changelog_list = writer.manifest_list(changelog)
        index_before = None if base.snapshot is None else base.snapshot.index_manifest
        if old is not None and (old.index_before, old.index_changes) == (index_before, index):
            index_manifest = old.index_manifest
        else:
            index_manifest = self._write_index_manifest(index)
        self._written = _Written(
            before=base.manifests,
            base=self._write_base_manifests(entries),
            entries=entries,
            delta=delta,
            delta_list=delta_list,
            changelog=changelog,
            changelog_list=changelog_list,
            index_before=index_before,
            index_changes=index,
            index_manifest=index_manifest,
        )
        writer.keep_only(self._written.list_names())
        return self._written

    def _build_properties(self, entries: Sequence[ManifestEntry]) -> dict[str, str]:
        """Return the properties; as in Java Paimon, only merges of manifests inherit old ones."""
        latest = self._latest
        inherited = latest.properties if latest is not None and self.changes.merge_manifests else {}
        sequence = build_sequence_properties(
            self._schema.typed_options,
            latest,
            entries,
            lambda: [] if latest is None else self._reader.read_live_entries(latest),
        )
        return {**inherited, **sequence}

    def _add_overwritten_entries(self) -> tuple[list[ManifestEntry], list[IndexManifestEntry]]:
        """Return the entries; for an overwrite, add deletes of the overwritten live files."""
        changes = self.changes
        if changes.overwrite is None:
            return list(changes.entries), list(changes.index)
        self._removed = self._find_removed_entries(changes.overwrite)
        dropped = [e.deleted() for e in self._base.index if changes.overwrite(e.partition)]
        return [*self._removed, *changes.entries], [*dropped, *changes.index]

    def _find_removed_entries(self, overwrite: PartitionFilter) -> Sequence[ManifestEntry]:
        """Return deletes of the live files of the overwritten partitions."""
        if self._latest is None:
            return ()
        changed = self._base.read_changed_partitions() if self._written is not None else None
        if changed is not None and not any(map(overwrite, changed)):
            return self._removed
        live = self._reader.read_live_entries(
            self._latest,
            manifests=self._base.manifests,
            partitions=lambda partitions: [p for p in partitions if overwrite(p)],
        )
        return [entry.deleted() for entry in live]

    def _check(
        self,
        entries: Sequence[ManifestEntry],
        index: Sequence[IndexManifestEntry],
        next_row_id: int,
    ) -> None:
        """Refuse changes that conflict with the latest snapshot."""
        changes, base = self.changes, self._base
        check_hash_index_guards(changes.hash_index_guards, base.index)
        if changes.read_guard is not None:
            changes.read_guard.check(self._find_later(changes.read_guard.snapshot_id), self._reader)
        if changes.column_guard is not None:
            guard = changes.column_guard
            guard.check(self._find_later(guard.snapshot_id), self._reader)
            check_indexed_columns(self._schema, guard, base.index, index)
        if not changes.can_conflict and all(entry.total_buckets <= 0 for entry in entries):
            return
        touched = self._find_touched_buckets(entries, index)
        index_manifest = None if self._latest is None else self._latest.index_manifest
        inputs = (entries, index, index_manifest, next_row_id)
        checked, changed = self._checked, None
        if checked is not None and checked.touched == touched:
            changed = base.read_changes(touched)
            if changed == [] and checked.inputs == inputs:
                return
        live: Sequence[ManifestEntry] | None = None
        if not changes.can_conflict:
            check_bucket_counts(self._read_entry_per_partition(touched), entries)
        else:
            if checked is None or checked.live is None or changed is None:
                live = base.read_live_entries(touched)
            else:
                live = apply_changes(checked.live, changed)
            self._check_live_entries(live, entries, index, next_row_id)
        self._checked = _Checked(inputs=inputs, touched=touched, live=live)

    def _find_later(self, snapshot_id: int) -> Sequence[Snapshot] | None:
        """Return the snapshots after an id that no attempt has checked.

        Returns None if some of them have expired, or if the table was rolled back since then.
        """
        latest, base = self._latest, self._base
        newest = 0 if latest is None else latest.id
        if newest < snapshot_id:
            return None
        if base.later is not None:
            return [snapshot for snapshot in base.later if snapshot.id > snapshot_id]
        found = self.snapshots.find_many(range(snapshot_id + 1, newest))
        if latest is not None and latest.id > snapshot_id:
            found[latest.id] = latest
        return list(found.values()) if len(found) == newest - snapshot_id else None

    def _check_live_entries(
        self,
        base: Sequence[ManifestEntry],
        entries: Sequence[ManifestEntry],
        index: Sequence[IndexManifestEntry],
        next_row_id: int,
    ) -> None:
        """Refuse changes that conflict with ``base``, the live entries of the touched buckets."""
        changes, previous_index = self.changes, self._base.index
        live = check_conflicts(changes.kind, base, entries)
        check_bucket_guards(changes.guards, base, previous_index)
        if changes.indexed_rows_guard is not None:
            changes.indexed_rows_guard.check(base, previous_index, index)
        next_before = 0 if self._latest is None else self._latest.next_row_id or 0
        delta = CommitDelta(
            kind=changes.kind,
            base=base,
            entries=entries,
            live=live,
            previous_index=previous_index,
            index=index,
            next_row_ids=(next_before, next_row_id),
        )
        find_conflicts(self._schema).check(delta)

    def _read_entry_per_partition(self, touched: TouchedBuckets) -> list[ManifestEntry]:
        """Return live entries: at least one for each of the partitions that has live files."""
        selected = touched.select_manifests(self._base.manifests, self._schema)
        newest_first = map(self._reader.open, reversed(selected))
        entries = find_live_entry_per_partition(newest_first, touched.partitions)
        return self._base.read_live_entries(touched) if entries is None else entries

    def _find_touched_buckets(
        self, entries: Sequence[ManifestEntry], index: Sequence[IndexManifestEntry]
    ) -> TouchedBuckets:
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
        if not adds_only_to_rewritten or row_tracking_fields(self._schema):
            return TouchedBuckets(partitions)
        return TouchedBuckets(partitions, frozenset(bucket.bucket for bucket in buckets))

    def _write_base_manifests(self, entries: Sequence[ManifestEntry]) -> Sequence[ManifestFileMeta]:
        """Return the manifests before the changes: merged, or with new row ids."""
        before, old = self._base.manifests, self._written
        if self.changes.reassignment is not None:
            return self.changes.reassignment.rewrite_manifests(self._reader, self.writer, before)
        if self._latest is not None and self._adds_deleted_files(entries):
            return drop_deleted_entries(self._reader, self.writer, self._latest, self._schema)
        options, fully = self._schema.typed_options, self.changes.merge_manifests
        merger = ManifestMerger(self._reader, self.writer, options, force_full=fully)
        if old is None or old.base == old.before:
            return merger.run(before)
        names = [meta.file_name for meta in before[: len(old.before)]]
        if names != [meta.file_name for meta in old.before]:
            return merger.run(before)
        return merger.run_again(old.base, before[len(old.before) :])

    def _adds_deleted_files(self, entries: Sequence[ManifestEntry]) -> bool:
        """Return whether a file moves to a level of which an earlier snapshot has deleted it."""
        moved = find_moved_files(entries)
        if not moved:
            return False
        select = build_partition_manifest_selector({e.partition for e in moved}, self._schema)
        manifests = [meta for meta in select(self._base.manifests) if meta.num_deleted_files]
        deleted = DeletedFiles.of(self._reader.open_all(manifests))
        return any(entry.identity in deleted.identities for entry in moved)

    def _write_index_manifest(self, index: Sequence[IndexManifestEntry]) -> str | None:
        latest, before = self._latest, self._base.index
        if self.changes.reassignment is not None:
            reassigned = self.changes.reassignment.rewrite_index(before)
            return self.writer.index_manifest(reassigned) if before else None
        if not index and not self._has_index_manifest_of_other_format():
            return None if latest is None else latest.index_manifest
        bucketed = not self._schema.is_bucket_unaware
        return self.writer.index_manifest(apply_index_changes(before, index, bucketed=bucketed))

    def _has_index_manifest_of_other_format(self) -> bool:
        """Return whether a merge of manifests must write the index manifest again."""
        name = None if self._latest is None else self._latest.index_manifest
        if name is None or not self.changes.merge_manifests:
            return False
        return self._reader.find_format(name) != self._schema.typed_options.get(MANIFEST_FORMAT)

    def _resolve_statistics(self) -> str | None:
        """Return the new statistics file, by default the old one if it has the current schema."""
        new, old = (
            self.changes.statistics,
            None if self._latest is None else self._latest.statistics,
        )
        if new is None:
            return old if old is not None and self._matches_schema(old) else None
        if not self._matches_schema(new):
            raise CommitConflictError(
                f"{self.snapshots.paths.root}: the schema was changed while statistics were "
                "computed. Nothing was changed; analyze again."
            )
        return new

    def _matches_schema(self, name: str) -> bool:
        key = name, self._schema.id
        if key not in self._matches:
            self._matches[key] = self._read_matches_schema(name)
        return self._matches[key]

    def _read_matches_schema(self, name: str) -> bool:
        try:
            statistics = read_statistics(self.snapshots.io, self.snapshots.paths, name)
            return statistics.schema_id == self._schema.id
        except (FileNotFoundError, CorruptFileError) as error:
            logger.warning("the new snapshot has no statistics: %s", error)
            return False
