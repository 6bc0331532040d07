"""Committing: one new snapshot, atomically, or nothing (format section 10)."""

import json
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

from tenacity import (
    Retrying,
    retry_if_result,
    stop_after_attempt,
    wait_exponential,
    wait_random,
)

from paimon_orch.errors import CommitConflictError, StorageError
from paimon_orch.format.index_manifest import IndexManifestEntry, combine
from paimon_orch.format.manifest import FileKind, ManifestEntry
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import (
    BATCH_COMMIT_IDENTIFIER,
    FIRST_SNAPSHOT_ID,
    CommitKind,
    Snapshot,
)
from paimon_orch.table.conflicts import (
    BucketGuard,
    HashGuard,
    check_conflicts,
    check_guards,
    check_hash_guards,
)
from paimon_orch.table.manifest_merge import ManifestMerge
from paimon_orch.table.manifests import ManifestReader, ManifestWriter
from paimon_orch.table.schemas import SchemaStore
from paimon_orch.table.snapshots import LATEST, SnapshotStore

logger = logging.getLogger(__name__)

PartitionFilter = Callable[[bytes], bool]


@dataclass(frozen=True, slots=True)
class Changes:
    """What one snapshot changes.

    ``overwrite`` selects the partitions whose live files are all removed first; it is asked again on every attempt.
    ``guards`` are the states of buckets that the changes were computed from, ``hash_guards`` those of dynamic buckets.
    """

    kind: CommitKind
    entries: tuple[ManifestEntry, ...] = ()
    changelog: tuple[ManifestEntry, ...] = ()
    index: tuple[IndexManifestEntry, ...] = ()
    guards: tuple[BucketGuard, ...] = ()
    hash_guards: tuple[HashGuard, ...] = ()
    overwrite: PartitionFilter | None = None
    identifier: int = BATCH_COMMIT_IDENTIFIER

    @property
    def needs_check(self) -> bool:
        """Tell whether the changes can collide with others at all."""
        return (
            self.kind is not CommitKind.APPEND
            or bool(self.index)
            or any(entry.kind is FileKind.DELETE for entry in self.entries)
        )


def new_commit_user(schema: TableSchema) -> str:
    """Return a fresh commit user, as batch commits must use (section 10.5)."""
    prefix = schema.typed_options.text("commit.user-prefix")
    return f"{prefix}_{uuid4()}" if prefix else str(uuid4())


@dataclass(slots=True)
class TableCommit:
    """Commits changes to one table and branch for one commit user."""

    schemas: SchemaStore
    snapshots: SnapshotStore
    manifests: ManifestReader
    user: str
    clock: Callable[[], float] = time.time
    attempts: int = field(default=0, init=False)

    def commit(self, changes: Changes) -> Snapshot:
        """Make one new snapshot and return it.

        Raises :class:`CommitConflictError` if another committer changed the same files, or if
        ``commit.max-retries`` attempts in a row lost the race for the next snapshot id. In both cases the table is
        unchanged and the manifests written for the attempt are removed; data files stay for the caller to remove.
        """
        options = self.schemas.latest().typed_options
        retries = options.integer("commit.max-retries", 10)
        shortest = options.duration("commit.min-retry-wait", "10 ms").total_seconds()
        longest = options.duration("commit.max-retry-wait", "10 s").total_seconds()
        retrying = Retrying(
            retry=retry_if_result(lambda snapshot: snapshot is None),
            stop=stop_after_attempt(retries + 1),
            wait=wait_exponential(multiplier=shortest, max=longest) + wait_random(0, shortest),
            retry_error_callback=lambda _: None,
        )
        snapshot: Snapshot | None = retrying(self._attempt, changes)
        self.attempts = int(retrying.statistics["attempt_number"])
        if snapshot is None:
            raise CommitConflictError(
                f"{self.snapshots.paths.root}: {self.attempts} attempts lost the race for the next snapshot; the "
                "table is unchanged. Try again, or raise the option 'commit.max-retries'."
            )
        logger.info(
            "committed snapshot %d (%s) to %s, attempt %d",
            snapshot.id,
            snapshot.commit_kind,
            self.snapshots.paths.root,
            self.attempts,
        )
        return snapshot

    def _attempt(self, changes: Changes) -> Snapshot | None:
        """Try once; None if another committer took the snapshot id."""
        latest = self.snapshots.latest()
        schema = self.schemas.latest()
        writer = ManifestWriter(self.snapshots.io, self.snapshots.paths, schema)
        try:
            snapshot = self._prepare(changes, latest, schema, writer)
        except BaseException:
            writer.remove()
            raise
        if not self._create(snapshot):
            writer.remove()
            return None
        try:
            self.snapshots.write_hint(LATEST, snapshot.id)
        except (OSError, StorageError) as error:  # the commit has happened; the hint only helps
            logger.warning("snapshot %d is committed, its hint is not: %s", snapshot.id, error)
        return snapshot

    def _create(self, snapshot: Snapshot) -> bool:
        """Create the snapshot file; an uncertain outcome is settled by looking."""
        path, data = self.snapshots.path(snapshot.id), snapshot.to_json()
        try:
            if self.snapshots.io.create(path, data):
                return True
            return self.snapshots.io.read_bytes(path) == data
        except (OSError, StorageError) as error:
            try:
                if self.snapshots.io.read_bytes(path) == data:
                    return True
            except (OSError, StorageError):
                pass
            raise StorageError(
                f"{path}: it is not known whether the commit happened ({error}). Nothing was removed; if it did "
                f"not, a new attempt is safe. Look for commit user {snapshot.commit_user}."
            ) from error

    def _prepare(
        self,
        changes: Changes,
        latest: Snapshot | None,
        schema: TableSchema,
        writer: ManifestWriter,
    ) -> Snapshot:
        previous_index = self.manifests.index_entries(latest)
        check_hash_guards(changes.hash_guards, previous_index)
        entries, index = self._complete(changes, latest, previous_index)
        if changes.needs_check:
            touched = {entry.partition for entry in entries}
            touched |= {guard.partition for guard in changes.guards}
            base = self._live(latest, touched)
            check_conflicts(schema, changes.kind, base, entries)
            check_guards(changes.guards, base, previous_index)
        before = [] if latest is None else self.manifests.manifests(latest)
        merged = ManifestMerge(self.manifests, writer, schema.typed_options).run(before)
        base_list, base_size = writer.manifest_list(merged)
        delta_list, delta_size = writer.manifest_list(writer.manifests(entries))
        changelog_list, changelog_size = None, None
        if changes.changelog:
            changelog_list, changelog_size = writer.manifest_list(
                writer.manifests(changes.changelog)
            )
        index_manifest = None if latest is None else latest.index_manifest
        if index:
            unaware = not schema.primary_keys and schema.typed_options.bucket == -1
            combined = combine(previous_index, index, bucketed=not unaware)
            index_manifest = writer.index_manifest(combined)
        delta_rows = sum(_signed_rows(entry) for entry in entries)
        now = int(self.clock() * 1000)
        return Snapshot(
            FIRST_SNAPSHOT_ID if latest is None else latest.id + 1,
            schema.id,
            base_list,
            delta_list,
            self.user,
            changes.identifier,
            changes.kind,
            now if latest is None else max(now, latest.time_millis),
            (0 if latest is None else latest.total_record_count) + delta_rows,
            delta_rows,
            base_size,
            delta_size,
            changelog_list,
            changelog_size,
            sum(entry.file.row_count for entry in changes.changelog) if changes.changelog else None,
            index_manifest,
            None if latest is None else latest.watermark,
            self._statistics(latest, schema),
            next_row_id=0 if latest is None else latest.next_row_id or 0,
        )

    def _complete(
        self,
        changes: Changes,
        latest: Snapshot | None,
        index: Sequence[IndexManifestEntry],
    ) -> tuple[list[ManifestEntry], list[IndexManifestEntry]]:
        """Add what an overwrite removes, computed from the latest snapshot."""
        if changes.overwrite is None:
            return list(changes.entries), list(changes.index)
        removed = [e.deleted() for e in self._live(latest, None) if changes.overwrite(e.partition)]
        dropped = [e.deleted() for e in index if changes.overwrite(e.partition)]
        return [*removed, *changes.entries], [*dropped, *changes.index]

    def _live(
        self, latest: Snapshot | None, partitions: Iterable[bytes] | None
    ) -> list[ManifestEntry]:
        if latest is None:
            return []
        if partitions is None:
            return self.manifests.live(latest)
        wanted = set(partitions)
        return self.manifests.live(latest, partitions=lambda _: wanted)

    def _statistics(self, latest: Snapshot | None, schema: TableSchema) -> str | None:
        """Keep the table statistics as long as the schema is the one they were computed for."""
        if latest is None or latest.statistics is None:
            return None
        path = f"{self.snapshots.paths.root}/statistics/{latest.statistics}"
        try:
            stored = json.loads(self.snapshots.io.read_bytes(path))
            return latest.statistics if stored.get("schemaId") == schema.id else None
        except (OSError, ValueError, AttributeError):
            return None


def _signed_rows(entry: ManifestEntry) -> int:
    return entry.file.row_count if entry.kind is FileKind.ADD else -entry.file.row_count
