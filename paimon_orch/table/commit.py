"""Committing: one new snapshot, atomically, or nothing (format section 10)."""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import uuid4

from tenacity import (
    Retrying,
    retry_if_result,
    stop_after_attempt,
    stop_after_delay,
    wait_exponential,
    wait_random,
)

from paimon_orch.errors import (
    CommitConflictError,
    CorruptFileError,
    InputError,
    NotFoundError,
    StorageError,
)
from paimon_orch.format.index_manifest import IndexManifestEntry, combine
from paimon_orch.format.manifest import FileKind, ManifestEntry
from paimon_orch.format.manifest_list import ManifestFileMeta
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
    check_bucket_counts,
    check_conflicts,
    check_guards,
    check_hash_guards,
    newest_of_partitions,
)
from paimon_orch.table.manifest_merge import ManifestMerge
from paimon_orch.table.manifests import ManifestReader, ManifestWriter
from paimon_orch.table.pruning import names_partitions
from paimon_orch.table.row_guards import ReadGuard, check_vectors
from paimon_orch.table.row_ids import check_row_ids, with_row_ids
from paimon_orch.table.schemas import SchemaStore
from paimon_orch.table.snapshots import LATEST, SnapshotStore
from paimon_orch.table.stored import read_statistics

logger = logging.getLogger(__name__)

PartitionFilter = Callable[[bytes], bool]
_UNCERTAIN_OUTCOMES = 3  # of one commit; then the caller is told


@dataclass(frozen=True, slots=True)
class CommitId:
    """Names one commit of one job: committed a second time, after a crash say, it changes nothing (section 10.5).

    ``user`` is the job's name, the same in all its runs and no other job's; ``identifier`` grows from commit to commit,
    such as a date or an offset. What is not above the newest identifier of the user counts as committed.
    """

    user: str
    identifier: int

    def __post_init__(self) -> None:
        if not self.user.strip():
            raise InputError("the user of a commit must not be blank")
        if not 0 <= self.identifier < BATCH_COMMIT_IDENTIFIER:
            raise InputError(
                f"commit identifier {self.identifier} must be from 0 to {BATCH_COMMIT_IDENTIFIER - 1}"
            )


@dataclass(frozen=True, slots=True)
class Changes:
    """What one snapshot changes.

    ``overwrite`` selects the partitions whose live files are all removed first; it is asked again on every attempt.
    ``guards`` are the states of buckets that the changes were computed from, ``hash_guards`` those of dynamic buckets;
    ``read_guard`` is what rows were computed from.
    ``statistics`` names a new statistics file; without one the old is kept as long as it fits the schema.
    ``merge_manifests`` merges all manifests that are not full, and takes deleted entries out of them.
    """

    kind: CommitKind
    entries: tuple[ManifestEntry, ...] = ()
    changelog: tuple[ManifestEntry, ...] = ()
    index: tuple[IndexManifestEntry, ...] = ()
    guards: tuple[BucketGuard, ...] = ()
    hash_guards: tuple[HashGuard, ...] = ()
    read_guard: ReadGuard | None = None
    overwrite: PartitionFilter | None = None
    identifier: int = BATCH_COMMIT_IDENTIFIER
    statistics: str | None = None
    merge_manifests: bool = False

    @property
    def needs_check(self) -> bool:
        """Tell whether the changes can collide with others at all."""
        return (
            self.kind in (CommitKind.COMPACT, CommitKind.OVERWRITE)
            or bool(self.index)
            or any(entry.kind is FileKind.DELETE for entry in self.entries)
        )


def new_commit_user(schema: TableSchema) -> str:
    """Return a fresh commit user, as batch commits must use (section 10.5)."""
    prefix = schema.typed_options.text("commit.user-prefix")
    return f"{prefix}_{uuid4()}" if prefix else str(uuid4())


@dataclass(slots=True)
class _Attempts:
    """What the attempts at one commit have done so far.

    ``seen`` is the newest snapshot that was there at the last attempt, ``written`` the delta lists of attempts that may
    have become a snapshot, ``uncertain`` how many times that stayed unknown.
    """

    changes: Changes
    count: int = 0
    seen: int = 0
    written: set[str] = field(default_factory=set)
    uncertain: int = 0


@dataclass(slots=True)
class TableCommit:
    """Commits changes to one table and branch for one commit user.

    After a commit ``attempts`` tells how many times it was tried. ``duplicate`` tells that the user had committed this
    identifier before, by another call: the files of this one are no part of the table then.
    """

    schemas: SchemaStore
    snapshots: SnapshotStore
    manifests: ManifestReader
    user: str
    clock: Callable[[], float] = time.time
    attempts: int = field(default=0, init=False)
    duplicate: bool = field(default=False, init=False)

    def commit(self, changes: Changes) -> Snapshot:
        """Make one new snapshot and return it; or the one that is there, if these changes were committed before.

        Raises :class:`CommitConflictError` if another committer changed the same files, or if ``commit.max-retries``
        attempts in a row, or those of ``commit.timeout``, lost the race for the next snapshot id. In both cases the table is
        unchanged and the manifests written for the attempt are removed; data files stay for the caller to remove.
        Raises :class:`StorageError` if storage fails; where the outcome stays unknown, the text says so.
        """
        options = self.schemas.latest().typed_options
        retries = options.integer("commit.max-retries", 10)
        shortest = options.duration("commit.min-retry-wait", "10 ms").total_seconds()
        patience = options.duration("commit.timeout", "365 d").total_seconds()
        longest = options.duration("commit.max-retry-wait", "10 s").total_seconds()
        retrying = Retrying(
            retry=retry_if_result(lambda snapshot: snapshot is None),
            stop=stop_after_attempt(retries + 1) | stop_after_delay(patience),
            wait=wait_exponential(multiplier=shortest, max=longest) + wait_random(0, shortest),
            retry_error_callback=lambda _: None,
        )
        state = _Attempts(changes)
        snapshot: Snapshot | None = retrying(self._attempt, state)
        self.attempts = state.count
        if snapshot is None:
            raise CommitConflictError(
                f"{self.snapshots.paths.root}: {self.attempts} attempts lost the race for the next snapshot; the "
                "table is unchanged. Try again, or raise the options 'commit.max-retries' and 'commit.timeout'."
            )
        self.duplicate = snapshot.delta_manifest_list not in state.written
        logger.info(
            "committed snapshot %d (%s) to %s, attempt %d",
            snapshot.id,
            snapshot.commit_kind,
            self.snapshots.paths.root,
            self.attempts,
        )
        return snapshot

    def committed(self, identifier: int) -> Snapshot | None:
        """Return the snapshot by which this user has committed an identifier, or a later one; None if it has not."""
        found = None
        for snapshot in self.snapshots.walk_back():
            if snapshot.commit_user != self.user:
                continue
            if snapshot.commit_identifier < identifier:
                break
            found = snapshot
            if snapshot.commit_identifier == identifier:
                break
        return found

    def _earlier(self, state: _Attempts, latest: Snapshot | None) -> Snapshot | None:
        """Return the snapshot that these very changes have become already."""
        changes = state.changes
        if state.count == 1 and changes.identifier != BATCH_COMMIT_IDENTIFIER:
            return self.committed(changes.identifier)
        if state.count == 1 or latest is None:
            return None
        if changes.identifier == BATCH_COMMIT_IDENTIFIER and not state.written:
            return None  # every attempt is known to have lost, and the user is ours alone
        mine = self.user, changes.identifier, changes.kind
        for snapshot_id in range(state.seen + 1, latest.id + 1):
            try:
                snapshot = self.snapshots.get(snapshot_id)
            except NotFoundError as error:  # expired in these seconds, and perhaps with it our own
                raise StorageError(
                    f"{error}: it is not known whether the commit happened"
                ) from error
            if (snapshot.commit_user, snapshot.commit_identifier, snapshot.commit_kind) == mine:
                return snapshot
        return None

    def _attempt(self, state: _Attempts) -> Snapshot | None:
        """Try once; None if it is to be tried again."""
        state.count += 1
        latest = self.snapshots.latest()
        earlier = self._earlier(state, latest)
        if earlier is not None:
            return earlier
        state.seen = 0 if latest is None else latest.id
        schema = self.schemas.latest()
        writer = ManifestWriter(self.snapshots.io, self.snapshots.paths, schema)
        try:
            snapshot = self._prepare(state.changes, latest, schema, writer)
        except BaseException:
            writer.remove()
            raise
        state.written.add(snapshot.delta_manifest_list)
        created = self._create(snapshot, state)
        if created is False:
            state.written.remove(snapshot.delta_manifest_list)
            writer.remove()
        if not created:
            return None
        try:
            self.snapshots.write_hint(LATEST, snapshot.id)
        except (OSError, StorageError) as error:  # the commit has happened; the hint only helps
            logger.warning("snapshot %d is committed, its hint is not: %s", snapshot.id, error)
        return snapshot

    def _create(self, snapshot: Snapshot, state: _Attempts) -> bool | None:
        """Create the snapshot file; None if it is not known whether it is there now, or will be.

        An unknown outcome is settled by the next attempt: it finds the snapshot, or creates one of the same id, which
        only one of the two can get. Until then nothing may be removed.
        """
        path, data = self.snapshots.path(snapshot.id), snapshot.to_json()
        try:
            if self.snapshots.io.create(path, data):
                return True
            return self.snapshots.io.read_bytes(path) == data
        except (OSError, StorageError) as error:
            with suppress(OSError, StorageError):
                return self.snapshots.io.read_bytes(path) == data
            state.uncertain += 1
            if state.uncertain < _UNCERTAIN_OUTCOMES:
                logger.warning("%s: asked again, the outcome is unknown (%s)", path, error)
                return None
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
        if changes.read_guard is not None:
            changes.read_guard.check(latest, self.snapshots, self.manifests)
        entries, index = self._complete(changes, latest, previous_index)
        snapshot_id = FIRST_SNAPSHOT_ID if latest is None else latest.id + 1
        next_row_id = 0 if latest is None else latest.next_row_id or 0
        entries, next_row_id = with_row_ids(schema, entries, snapshot_id, next_row_id)
        if changes.needs_check:
            live = self._check(changes, latest, schema, entries, index, previous_index)
            check_row_ids(schema, live, next_row_id)
        elif any(entry.total_buckets > 0 for entry in entries):
            check_bucket_counts(self._of_partitions(latest, entries, schema), entries)
        base_list, base_size = writer.manifest_list(self._merged(changes, latest, schema, writer))
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
            snapshot_id,
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
            self._statistics(changes, latest, schema),
            next_row_id=next_row_id,
        )

    def _check(
        self,
        changes: Changes,
        latest: Snapshot | None,
        schema: TableSchema,
        entries: Sequence[ManifestEntry],
        index: Sequence[IndexManifestEntry],
        previous_index: Sequence[IndexManifestEntry],
    ) -> list[ManifestEntry]:
        """Refuse changes that conflict with the latest snapshot; return the entries live after them where they touch."""
        touched = {entry.partition for entry in entries}
        touched |= {guard.partition for guard in changes.guards}
        touched |= {item.partition for item in index}
        base = self._live(latest, touched, schema)
        live = check_conflicts(schema, changes.kind, base, entries)
        check_guards(changes.guards, base, previous_index)
        check_vectors(schema, base, entries, previous_index, index)
        return live

    def _merged(
        self,
        changes: Changes,
        latest: Snapshot | None,
        schema: TableSchema,
        writer: ManifestWriter,
    ) -> list[ManifestFileMeta]:
        """Return the manifests of the latest snapshot, small ones merged."""
        before = [] if latest is None else self.manifests.manifests(latest)
        options, fully = schema.typed_options, changes.merge_manifests
        return ManifestMerge(self.manifests, writer, options, fully=fully).run(before)

    def _complete(
        self,
        changes: Changes,
        latest: Snapshot | None,
        index: Sequence[IndexManifestEntry],
    ) -> tuple[list[ManifestEntry], list[IndexManifestEntry]]:
        """Add what an overwrite removes, computed from the latest snapshot."""
        if changes.overwrite is None:
            return list(changes.entries), list(changes.index)
        live = [] if latest is None else self.manifests.live(latest)
        removed = [e.deleted() for e in live if changes.overwrite(e.partition)]
        dropped = [e.deleted() for e in index if changes.overwrite(e.partition)]
        return [*removed, *changes.entries], [*dropped, *changes.index]

    def _of_partitions(
        self, latest: Snapshot | None, entries: Iterable[ManifestEntry], schema: TableSchema
    ) -> list[ManifestEntry]:
        """Return live entries of the partitions that entries are for, at least one of each that has some."""
        if latest is None:
            return []
        touched = {entry.partition for entry in entries}
        named = names_partitions(touched, schema)
        newest_first = filter(named, reversed(self.manifests.manifests(latest)))
        found = newest_of_partitions(map(self.manifests.open, newest_first), touched)
        return self._live(latest, touched, schema) if found is None else found

    def _live(
        self, latest: Snapshot | None, partitions: set[bytes], schema: TableSchema
    ) -> list[ManifestEntry]:
        """Return the live entries of partitions; manifests that can name none of them are not read."""
        if latest is None:
            return []
        named = names_partitions(partitions, schema)
        return self.manifests.live(latest, manifests=named, partitions=lambda _: partitions)

    def _statistics(
        self, changes: Changes, latest: Snapshot | None, schema: TableSchema
    ) -> str | None:
        """Return the new statistics file, or keep the old one as long as the schema is the one it was computed for."""
        if changes.statistics is not None:
            if not self._fits(changes.statistics, schema):
                raise CommitConflictError(
                    f"{self.snapshots.paths.root}: the schema was changed while statistics were computed. Nothing was "
                    "changed; analyze again."
                )
            return changes.statistics
        old = None if latest is None else latest.statistics
        return old if old is not None and self._fits(old, schema) else None

    def _fits(self, name: str, schema: TableSchema) -> bool:
        try:
            found = read_statistics(self.snapshots.io, self.snapshots.paths, name)
            return found.schema_id == schema.id
        except (FileNotFoundError, CorruptFileError) as error:
            logger.warning("statistics are dropped: %s", error)
            return False


def _signed_rows(entry: ManifestEntry) -> int:
    return entry.file.row_count if entry.kind is FileKind.ADD else -entry.file.row_count
