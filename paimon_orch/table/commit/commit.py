"""Committing: one new snapshot, atomically, or nothing.

See docs/format/commit.md.
"""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
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
    InputError,
    NotFoundError,
    StorageError,
    UnsupportedError,
)
from paimon_orch.format.options.core_options import (
    COMMIT_MAX_RETRIES,
    COMMIT_MAX_RETRY_WAIT,
    COMMIT_MIN_RETRY_WAIT,
    COMMIT_TIMEOUT,
    COMMIT_USER_PREFIX,
)
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import BATCH_COMMIT_IDENTIFIER, Snapshot
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.commit.snapshot_builder import SnapshotBuilder
from paimon_orch.table.metadata.manifest_io import ManifestReader, ManifestWriter
from paimon_orch.table.metadata.schema_store import SchemaStore
from paimon_orch.table.metadata.snapshot_store import LATEST, SnapshotStore

logger = logging.getLogger(__name__)

_MAX_UNKNOWN_OUTCOMES = 3  # of one commit; then the caller is told


@dataclass(frozen=True, slots=True)
class CommitId:
    """Names one commit of one job: committed a second time, after a crash say, it changes nothing.

    ``user`` is the job's name, the same in all its runs and no other job's; ``identifier`` grows from commit to commit,
    such as a date or an offset. What is not above the newest identifier of the user counts as committed.

    See docs/format/commit.md#duplicates-after-a-restart.
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


def create_commit_user(schema: TableSchema) -> str:
    """Return a fresh commit user, as batch commits must use.

    See docs/format/commit.md#duplicates-after-a-restart.
    """
    prefix = schema.typed_options.get(COMMIT_USER_PREFIX)
    return f"{prefix}_{uuid4()}" if prefix else str(uuid4())


@dataclass(slots=True, kw_only=True)
class _CommitState:
    """What the attempts at one commit have done so far.

    ``seen`` is the newest snapshot that was there at the last attempt, ``written`` the delta lists of attempts that may
    have become a snapshot, ``uncertain`` how many times that stayed unknown.
    """

    changes: CommitChanges
    count: int = 0
    seen: int = 0
    written: set[str] = field(default_factory=set)
    unknown_outcomes: int = 0


@dataclass(slots=True, kw_only=True)
class TableCommit:
    """Commits changes to one table and branch for one commit user.

    After a commit ``attempts`` tells how many times it was tried. ``duplicate`` tells that the user had committed this
    identifier before, by another call: the files of this one are no part of the table then. ``check`` refuses a schema
    whose options forbid the step; each attempt calls it, as options may change meanwhile.
    """

    schemas: SchemaStore
    snapshots: SnapshotStore
    manifests: ManifestReader
    user: str
    clock: Callable[[], float] = time.time
    check: Callable[[TableSchema], None] = lambda _: None
    attempts: int = field(default=0, init=False)
    is_duplicate: bool = field(default=False, init=False)

    def commit(self, changes: CommitChanges) -> Snapshot:
        """Make one new snapshot and return it; or the one that is there, if these changes were committed before.

        Raises :class:`CommitConflictError` if another committer changed the same files, or if ``commit.max-retries``
        attempts in a row, or those of ``commit.timeout``, lost the race for the next snapshot id. In both cases the table is
        unchanged and the manifests written for the attempt are removed; data files stay for the caller to remove.
        Raises :class:`StorageError` if storage fails; where the outcome stays unknown, the text says so.
        """
        options = self.schemas.latest().typed_options
        retries = options.get(COMMIT_MAX_RETRIES)
        shortest = options.get(COMMIT_MIN_RETRY_WAIT).total_seconds()
        patience = options.get(COMMIT_TIMEOUT, timedelta(days=365)).total_seconds()
        longest = options.get(COMMIT_MAX_RETRY_WAIT).total_seconds()
        retrying = Retrying(
            retry=retry_if_result(lambda snapshot: snapshot is None),
            stop=stop_after_attempt(retries + 1) | stop_after_delay(patience),
            wait=wait_exponential(multiplier=shortest, max=longest) + wait_random(0, shortest),
            retry_error_callback=lambda _: None,
        )
        state = _CommitState(changes=changes)
        try:
            snapshot: Snapshot | None = retrying(self._attempt, state)
        except UnsupportedError as error:
            if state.written:
                raise StorageError(
                    f"{error}; it is not known whether the commit happened"
                ) from error
            raise
        self.attempts = state.count
        if snapshot is None:
            raise CommitConflictError(
                f"{self.snapshots.paths.root}: {self.attempts} attempts lost the race for the next snapshot; the "
                "table is unchanged. Try again, or raise the options 'commit.max-retries' and 'commit.timeout'."
            )
        self.is_duplicate = snapshot.delta_manifest_list not in state.written
        logger.info(
            "committed snapshot %d (%s) to %s, attempt %d",
            snapshot.id,
            snapshot.commit_kind,
            self.snapshots.paths.root,
            self.attempts,
        )
        return snapshot

    def find_committed(self, identifier: int) -> Snapshot | None:
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

    def _find_earlier_commit(self, state: _CommitState, latest: Snapshot | None) -> Snapshot | None:
        """Return the snapshot that these very changes have become already."""
        changes = state.changes
        if state.count == 1 and changes.identifier != BATCH_COMMIT_IDENTIFIER:
            return self.find_committed(changes.identifier)
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

    def _attempt(self, state: _CommitState) -> Snapshot | None:
        """Try once; None if it is to be tried again."""
        state.count += 1
        latest = self.snapshots.latest()
        earlier = self._find_earlier_commit(state, latest)
        if earlier is not None:
            return earlier
        state.seen = 0 if latest is None else latest.id
        schema = self.schemas.latest()
        self.check(schema)
        writer = ManifestWriter(self.snapshots.io, self.snapshots.paths, schema)
        coming = SnapshotBuilder(
            changes=state.changes,
            latest=latest,
            schema=schema,
            snapshots=self.snapshots,
            manifests=self.manifests,
        )
        try:
            snapshot = coming.write(writer, self.user, int(self.clock() * 1000))
        except BaseException:
            writer.remove()
            raise
        state.written.add(snapshot.delta_manifest_list)
        created = self._create_snapshot_file(snapshot, state)
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

    def _create_snapshot_file(self, snapshot: Snapshot, state: _CommitState) -> bool | None:
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
            state.unknown_outcomes += 1
            if state.unknown_outcomes < _MAX_UNKNOWN_OUTCOMES:
                logger.warning("%s: asked again, the outcome is unknown (%s)", path, error)
                return None
            raise StorageError(
                f"{path}: it is not known whether the commit happened ({error}). Nothing was removed; if it did "
                f"not, a new attempt is safe. Look for commit user {snapshot.commit_user}."
            ) from error
