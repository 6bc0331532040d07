"""Creates one new snapshot atomically, or changes nothing.

See docs/format/commit.md.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

from paimon_orch.errors import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    FileNotCreatedError,
    MissingFileError,
    NotFoundError,
    PaimonError,
    SnapshotNotCreatedError,
    StorageError,
)
from paimon_orch.format.manifest.manifest_entry import ManifestEntry
from paimon_orch.format.options import Options
from paimon_orch.format.options.core_options import (
    COMMIT_MAX_RETRIES,
    COMMIT_MAX_RETRY_WAIT,
    COMMIT_MIN_RETRY_WAIT,
    COMMIT_TIMEOUT,
)
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import BATCH_COMMIT_IDENTIFIER, CommitKind, Snapshot
from paimon_orch.retry_policy import STEP_ON_CONFLICT, STORE_RETRY_SECONDS, RetryPolicy
from paimon_orch.safe_text import get_logger
from paimon_orch.storage.concurrency import start_call
from paimon_orch.storage.store_operation import try_once
from paimon_orch.table.catalog_environment import (
    NO_CATALOG,
    CatalogEnvironment,
    PartitionStatistics,
)
from paimon_orch.table.commit.commit_base import CommitBase, find_later_snapshots
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.commit.deferred_interrupt import defer_interrupts
from paimon_orch.table.commit.late_creation import CreatedSnapshot
from paimon_orch.table.commit.partition_statistics import count_partition_changes
from paimon_orch.table.commit.snapshot_builder import BuiltSnapshot, SnapshotBuilder
from paimon_orch.table.metadata.manifest_io import ManifestReader, ManifestWriter
from paimon_orch.table.metadata.schema_store import SchemaStore
from paimon_orch.table.metadata.snapshot_store import LATEST, SnapshotStore, hides_snapshots

logger = get_logger(__name__)

_MAX_UNKNOWN_OUTCOMES = 3
"""A commit fails after this number of attempts with an unknown outcome."""


class CommitRules(Protocol):
    """Rules for commits to a branch that other branches depend on."""

    def check(self, kind: CommitKind, entries: Sequence[ManifestEntry]) -> None:
        """Refuse the entries of a commit, by an error, before the snapshot is created."""
        ...

    def follow(self, snapshot: Snapshot, entries: Sequence[ManifestEntry]) -> None:
        """Change other branches after a commit."""
        ...


@dataclass(slots=True, kw_only=True)
class _CommitState:
    """The progress of the attempts of one commit."""

    changes: CommitChanges
    count: int = 0
    """The number of attempts that were started."""

    latest_id: int = 0
    """The id of the newest snapshot at the start of the last attempt, or 0 if there was none."""

    base: CommitBase | None = None
    """What the previous attempt was checked against, if it lost a race."""

    builder: SnapshotBuilder | None = None
    """Holds the files of attempts that lost a race, and of the current one."""

    is_creating: bool = False
    """Whether a snapshot with these files may exist, so that they must not be deleted."""

    starts_anew: bool = False
    """Whether the next attempt reads all again: the previous one created its snapshot too late and
    deleted it, or read a snapshot that expired."""

    missing_files: set[str] = field(default_factory=set)
    """The files that attempts did not find, because the snapshot that they read expired."""

    lost_races: int = 0
    """The number of attempts in which another commit was first."""

    delta_lists: set[str] = field(default_factory=set)
    """The delta manifest lists of attempts that may have created a snapshot."""

    entries: Sequence[ManifestEntry] = ()
    """The entries of the delta of the last attempt."""

    unknown_outcomes: int = 0
    """The number of attempts whose outcome was unknown at their end."""

    unresolved_id: int | None = None
    """The id of a snapshot that an attempt may have created and whose file was not read yet."""

    started_id: int | None = None
    """The id of a snapshot whose creation was started and whose outcome was not read yet."""

    def remove_files(self) -> None:
        """Delete the manifests of attempts that certainly created no snapshot."""
        if self.builder is not None and not self.is_creating:
            with try_once():
                self.builder.writer.remove()

    def leave_files(self) -> None:
        """Start anew after an attempt whose snapshot exists, or may exist; its files remain."""
        if self.builder is not None:
            self.builder.writer.remove_superseded()
        self.base, self.builder, self.is_creating = None, None, False


@dataclass(slots=True, kw_only=True)
class TableCommit:
    """Commits changes to one table or branch for one commit user."""

    options: Options
    """The table's options when the commit was created: they limit its attempts."""
    schemas: SchemaStore
    snapshots: SnapshotStore
    manifests: ManifestReader
    user: str
    environment: CatalogEnvironment = NO_CATALOG
    clock: Callable[[], float] = time.time
    check: Callable[[TableSchema], None] = lambda _: None
    """Raises an error if the options of a schema forbid the step; called by each attempt."""

    planned: Snapshot | None = None
    """The newest snapshot when the commit was planned; fewer requests find what is newer."""

    rules: CommitRules | None = None
    """More rules of the branch that is written."""

    on_commit: Callable[[Snapshot], None] = lambda _: None
    """Called with the snapshot after each commit; errors are warnings, because the snapshot exists."""

    attempts: int = field(default=0, init=False)
    """The number of attempts of the last commit."""

    created: Snapshot | None = field(default=None, init=False)
    """The snapshot that the last commit created, also if it was interrupted after that."""

    is_duplicate: bool = field(default=False, init=False)
    """Whether an earlier call committed the identifier, so that the new files are not used."""

    def commit(self, changes: CommitChanges) -> Snapshot:
        """Create and return one new snapshot, or return the snapshot that has the changes already.

        Raises :class:`CommitConflictError` if another committer changed the same files, or if
        another commit was first in each attempt (``commit.max-retries``, ``commit.timeout``). The
        table is then unchanged, and the manifests of the attempt are deleted; the caller must
        delete the data files.

        Raises :class:`CommitOutcomeUnknownError` if storage failed after the commit may have
        succeeded; then no file is deleted. Raises :class:`StorageError` if storage failed earlier.
        """
        state = _CommitState(changes=changes)
        try:
            try:
                return self._finish(state, self._make_attempts(state))
            except BaseException:
                state.remove_files()
                raise
        except CommitOutcomeUnknownError:
            raise
        except (PaimonError, OSError) as error:
            if state.unresolved_id is not None:
                raise self._build_unknown_outcome(state.unresolved_id, error) from error
            raise
        except BaseException as error:
            if not isinstance(error, Exception):  # an interrupt
                self._note_outcome(state, error)
            raise

    def _make_attempts(self, state: _CommitState) -> Snapshot | None:
        """Return the snapshot of the first successful attempt, or None if there was none."""
        policy = _build_retry_policy(self.options, state.changes)
        unknown_outcomes = 0

        def draw_wait() -> float | None:
            nonlocal unknown_outcomes
            if state.unknown_outcomes > unknown_outcomes:  # the store has problems
                unknown_outcomes = state.unknown_outcomes
                return None
            return policy.draw_wait_after_lost_race(state.lost_races)

        return policy.call_until_result(
            lambda: self._attempt_unless_expired(state), draw_wait=draw_wait
        )

    def _note_outcome(self, state: _CommitState, error: BaseException) -> None:
        """Add to an interrupt whether the commit happened."""
        path, unknown_id = self.snapshots.paths.root, state.started_id or state.unresolved_id
        if self.created is not None:
            error.add_note(f"snapshot {self.created.id} of {path} is committed")
        elif unknown_id is not None:
            error.add_note(
                f"it is not known whether snapshot {unknown_id} of {path} is committed; "
                f"look for the commit user {self.user} in the newest snapshots"
            )
        else:
            error.add_note(f"no snapshot of {path} was committed")

    def _finish(self, state: _CommitState, snapshot: Snapshot | None) -> Snapshot:
        """Report the outcome of the attempts; raises an error if none of them succeeded."""
        self.attempts = state.count
        if snapshot is None:
            if state.unresolved_id is not None:
                raise self._build_unknown_outcome(state.unresolved_id, "all attempts were used")
            error = CommitConflictError(
                f"{self.snapshots.paths.root}: another commit was first each time (attempts: "
                f"{self.attempts}); the table is unchanged. Try again, or raise the options "
                "'commit.max-retries' and 'commit.timeout'."
            )
            error.is_lost_race = True
            raise error
        self.created = snapshot
        self.is_duplicate = snapshot.delta_manifest_list not in state.delta_lists
        if self.rules is not None and not self.is_duplicate:
            self.rules.follow(snapshot, state.entries)
        self._report(snapshot)
        logger.info(
            "committed snapshot %d (%s) to %s, attempt %d",
            snapshot.id,
            snapshot.commit_kind,
            self.snapshots.paths.root,
            self.attempts,
        )
        return snapshot

    def _report(self, snapshot: Snapshot) -> None:
        try:
            self.on_commit(snapshot)
        except (PaimonError, OSError) as error:
            logger.warning(
                "snapshot %d is committed, but not reported to all external systems: %s",
                snapshot.id,
                error,
            )

    def find_committed(self, identifier: int) -> Snapshot | None:
        """Return the snapshot in which this user committed an identifier or the next greater one.

        Returns None if the identifier is not committed.
        """
        committed = None
        for snapshot in self.snapshots.walk_back():
            if snapshot.commit_user != self.user:
                continue
            if snapshot.commit_identifier < identifier:
                break
            committed = snapshot
            if snapshot.commit_identifier == identifier:
                break
        return committed

    def _build_unknown_outcome(self, snapshot_id: int, reason: object) -> CommitOutcomeUnknownError:
        return CommitOutcomeUnknownError(
            f"{self.snapshots.path(snapshot_id)}: it is not known whether the commit happened "
            f"({reason}). No file was deleted. Before a retry, look for the commit user "
            f"{self.user} in the newest snapshots."
        )

    def _find_earlier_commit(
        self, state: _CommitState, latest: Snapshot | None, later: Sequence[Snapshot] | None
    ) -> Snapshot | None:
        """Return the snapshot of an earlier attempt or call that committed the same changes.

        ``later`` are the snapshots since the previous attempt, or None if they are not read yet.
        """
        changes = state.changes
        is_first = state.count == 1 or (state.starts_anew and not state.delta_lists)
        if is_first and changes.identifier != BATCH_COMMIT_IDENTIFIER:
            return self.find_committed(changes.identifier)
        if state.count == 1 or latest is None:
            return None
        if changes.identifier == BATCH_COMMIT_IDENTIFIER and not state.delta_lists:
            return None  # another commit won each attempt, and no other job has this user
        commit_key = self.user, changes.identifier, changes.kind
        for snapshot in self._read_since(state, latest) if later is None else later:
            other_key = snapshot.commit_user, snapshot.commit_identifier, snapshot.commit_kind
            if other_key == commit_key:
                return snapshot
        return None

    def _read_since(self, state: _CommitState, latest: Snapshot) -> Iterator[Snapshot]:
        """Yield the snapshots since the previous attempt.

        Raises :class:`CommitOutcomeUnknownError` if one has expired: this commit may have created
        it.
        """
        for snapshot_id in range(state.latest_id + 1, latest.id + 1):
            try:
                yield self.snapshots.get(snapshot_id)
            except NotFoundError as error:
                raise self._build_unknown_outcome(snapshot_id, error) from error

    def _accept_earlier(self, earlier: Snapshot, state: _CommitState) -> Snapshot | None:
        """Return an earlier commit of the changes, or None if this call created it too late."""
        is_own = earlier.delta_manifest_list in state.delta_lists
        if is_own and not self._keep_or_withdraw(earlier, state):
            state.delta_lists.remove(earlier.delta_manifest_list)
            state.lost_races += 1
            return None
        state.remove_files()
        return earlier

    def _attempt_unless_expired(self, state: _CommitState) -> Snapshot | None:
        """Make one attempt; return None if another one is needed.

        The snapshot that an attempt follows may expire while it is read. Then there are newer ones.
        """
        try:
            return self._attempt(state)
        except MissingFileError as error:
            if state.is_creating or error.path in state.missing_files:
                raise
            state.missing_files.add(error.path)
            state.remove_files()
            state.builder, state.starts_anew = None, True
            state.lost_races += 1
            return None

    def _start_attempt(self, state: _CommitState) -> None:
        state.count += 1
        if state.starts_anew:  # an expiration may have deleted the files, as those of a snapshot
            self.planned = None
            state.leave_files()

    def _attempt(self, state: _CommitState) -> Snapshot | None:
        """Make one attempt; return None if another one is needed."""
        self._start_attempt(state)
        latest, later, schema = self._read_newest(state)
        earlier = self._find_earlier_commit(state, latest, later)
        state.starts_anew = False
        if earlier is not None:
            return self._accept_earlier(earlier, state)
        state.latest_id = 0 if latest is None else latest.id
        if state.unresolved_id is not None and state.latest_id >= state.unresolved_id:
            state.unresolved_id = None  # the snapshot belongs to another commit
        self.check(schema)
        if later is None or state.base is None:
            base = CommitBase.read(latest, schema, self.manifests)
        else:
            base = state.base.follow(later, schema)
        built = self._build(state, base)
        statistics: Sequence[PartitionStatistics] = ()
        if self.snapshots.catalog is not None:
            statistics = count_partition_changes(built.entries, schema)
        snapshot = built.snapshot
        state.delta_lists.add(snapshot.delta_manifest_list)
        state.is_creating = True
        try:
            created = self._create_snapshot(built, latest, statistics, state)
        except SnapshotNotCreatedError:
            state.is_creating = False
            raise
        except (OSError, StorageError):  # the outcome is unknown
            raise
        except PaimonError:
            state.is_creating = False
            raise
        if created is False:
            state.delta_lists.remove(snapshot.delta_manifest_list)
            state.base, state.is_creating = base, False
            state.lost_races += 1
            return None
        if created:
            self._update_hint(snapshot)
        state.leave_files()
        return snapshot if created else None

    def _read_newest(
        self, state: _CommitState
    ) -> tuple[Snapshot | None, Sequence[Snapshot] | None, TableSchema]:
        """Return the newest snapshot, the snapshots since the previous attempt, and the schema.

        The second is None if the previous attempt is not known to be followed by these only.
        """
        known = self.planned if state.base is None else state.base.snapshot
        # If no schema follows that of the known snapshot, this is the newest one if the table still
        # has the snapshot: a table that was created again can have another schema with its id.
        read_later_schema = start_call(
            self.snapshots.io,
            lambda: (
                self.schemas.latest()
                if known is None
                else self.schemas.latest_after(known.schema_id)
            ),
        )
        later = None
        if state.base is not None and known is not None:
            later = find_later_snapshots(self.snapshots, known)
        if known is None:
            latest, has_known = self.snapshots.latest(), False
        elif later is None:
            latest, has_known = self.snapshots.latest_after(known)
        else:
            latest, has_known = (*later[-1:], known)[0], True
        schema = read_later_schema()
        if schema is None and known is not None and has_known:
            schema = self.schemas.get(known.schema_id)
        if schema is None or (latest is not None and latest.schema_id > schema.id):
            schema = self.schemas.latest()  # it was changed in between, or the table was replaced
        return latest, later, schema

    def _build(self, state: _CommitState, base: CommitBase) -> BuiltSnapshot:
        """Write the manifests of the next snapshot."""
        if state.builder is None:
            state.builder = SnapshotBuilder(
                changes=state.changes,
                snapshots=self.snapshots,
                writer=ManifestWriter(self.snapshots.io, self.snapshots.paths, base.schema),
                user=self.user,
            )
        built = state.builder.build(base, int(self.clock() * 1000))
        if self.rules is not None:
            self.rules.check(built.snapshot.commit_kind, built.entries)
        state.entries = built.entries
        state.builder.writer.flush()
        return built

    def _update_hint(self, snapshot: Snapshot) -> None:
        """Write the hint LATEST, unless the catalog does that."""
        if self.snapshots.catalog is not None:
            return
        try:
            self.snapshots.write_hint(LATEST, snapshot.id)
        except (OSError, StorageError) as error:  # readers do not require the hint
            logger.warning(
                "snapshot %d is committed, but the hint LATEST is not updated: %s",
                snapshot.id,
                error,
            )

    def _create_snapshot(
        self,
        built: BuiltSnapshot,
        base: Snapshot | None,
        statistics: Sequence[PartitionStatistics],
        state: _CommitState,
    ) -> bool | None:
        """Create the snapshot; return None if it is unknown whether it exists or will exist.

        The next attempt resolves an unknown outcome: it finds the snapshot, or tries to create one
        with the same id, and only one of the two attempts can succeed. Until then, no file may be
        deleted.
        """
        snapshot, catalog = built.snapshot, self.snapshots.catalog
        is_refused, failure = False, None
        try:
            if catalog is None:
                return self._create_snapshot_file(snapshot, state)
            with defer_interrupts():
                state.started_id = snapshot.id
                if catalog.commit(snapshot, base, statistics):
                    self._resolve(snapshot, state, is_committed=True)
                    return True
            is_refused = True
        except FileNotCreatedError as error:
            if state.unresolved_id is not None:  # of an earlier attempt
                raise self._build_unknown_outcome(snapshot.id, error) from error
            self._resolve(snapshot, state, is_committed=False)
            raise SnapshotNotCreatedError(f"{error} Nothing was committed") from error
        except (OSError, StorageError) as error:
            if catalog is None and isinstance(error, CommitOutcomeUnknownError):
                raise  # of the check whether the file was created too late
            failure = error
            if getattr(error, "retry_seconds", 0.0) >= STORE_RETRY_SECONDS:
                # the store did not answer for long, also when it was asked for the object
                raise self._build_unknown_outcome(snapshot.id, error) from error
        is_committed = self._find_outcome(snapshot, state, is_refused=is_refused)
        if is_committed is not None:
            self._resolve(snapshot, state, is_committed=is_committed)
            return is_committed
        reason = failure or "the catalog refused it, but may have received it twice"
        state.unresolved_id = snapshot.id
        state.unknown_outcomes += 1
        if state.unknown_outcomes < _MAX_UNKNOWN_OUTCOMES:
            path = self.snapshots.path(snapshot.id)
            logger.warning("%s: retrying, because the outcome is unknown (%s)", path, reason)
            return None
        raise self._build_unknown_outcome(snapshot.id, reason) from failure

    def _find_outcome(
        self, snapshot: Snapshot, state: _CommitState, *, is_refused: bool
    ) -> bool | None:
        """Return whether a snapshot was created, or None if that is still unknown.

        A catalog may still be carrying out the request, unless it refused it. It may have refused a
        snapshot that it has, because a gateway has sent the request twice.
        """
        try:
            if self.snapshots.catalog is None:
                path = self.snapshots.path(snapshot.id)
                is_created = self.snapshots.io.read_bytes(path) == snapshot.to_json()
                return is_created and self._keep_or_withdraw(snapshot, state)
            if self._is_in_catalog(snapshot):
                return True
        except CommitOutcomeUnknownError:
            raise
        except (OSError, PaimonError) as error:  # an error of the check decides nothing
            logger.warning("the outcome of the commit cannot be read: %s", error)
            return None
        return False if is_refused else None

    def _is_in_catalog(self, snapshot: Snapshot) -> bool:
        latest = self.snapshots.latest()
        if latest is None or latest.id < snapshot.id:
            return False
        created = latest if latest.id == snapshot.id else self.snapshots.get(snapshot.id)
        return created.delta_manifest_list == snapshot.delta_manifest_list

    def _create_snapshot_file(self, snapshot: Snapshot, state: _CommitState) -> bool:
        """Create the file of a snapshot, under the lock of the table if it has one."""
        io, path, data = self.snapshots.io, self.snapshots.path(snapshot.id), snapshot.to_json()
        with self.environment.hold_lock(), defer_interrupts():
            state.started_id = snapshot.id
            is_created = io.create(path, data) or io.read_bytes(path) == data
            is_committed = is_created and self._keep_or_withdraw(snapshot, state)
            self._resolve(snapshot, state, is_committed=is_committed)
        return is_committed

    def _keep_or_withdraw(self, snapshot: Snapshot, state: _CommitState) -> bool:
        """Return whether a file that was created is a snapshot of the table; if not, delete it."""
        if self.snapshots.catalog is not None:
            return True
        created = CreatedSnapshot(
            snapshot=snapshot,
            changes=state.changes,
            entries=state.entries,
            schemas=self.schemas,
            snapshots=self.snapshots,
            manifests=self.manifests,
        )
        try:
            if not created.is_late():
                return True
        except StorageError:
            raise
        except PaimonError as error:  # the snapshot exists, so its files must not be deleted
            raise self._build_unknown_outcome(snapshot.id, error) from error
        logger.warning(
            "%s: retrying, because others have committed and expired this snapshot meanwhile",
            self.snapshots.path(snapshot.id),
        )
        self.snapshots.io.delete(self.snapshots.path(snapshot.id))
        self._correct_hint()
        state.starts_anew = True
        return False

    def _correct_hint(self) -> None:
        """Let LATEST name the newest snapshot, if another writer's late snapshot hides it."""
        ids = self.snapshots.ids()
        if hides_snapshots(self.snapshots.hint(LATEST) or 0, ids):
            self.snapshots.write_hint(LATEST, ids[-1])

    def _resolve(self, snapshot: Snapshot, state: _CommitState, *, is_committed: bool) -> None:
        """Record the outcome of an attempt for the message of an interrupt."""
        state.started_id = None
        if is_committed:
            self.created = snapshot


def _build_retry_policy(options: Options, changes: CommitChanges) -> RetryPolicy:
    # a step that conflicts is planned again as often, with as many attempts of its commit
    rounds = STEP_ON_CONFLICT.attempts if changes.has_results_of_work else 1
    return RetryPolicy(
        attempts=(options.get(COMMIT_MAX_RETRIES) + 1) * rounds,
        min_wait=options.get(COMMIT_MIN_RETRY_WAIT).total_seconds(),
        max_wait=options.get(COMMIT_MAX_RETRY_WAIT).total_seconds(),
        timeout=options.get(COMMIT_TIMEOUT, timedelta(days=365)).total_seconds(),
    )
