"""The state of a table at one moment: its newest schema and snapshot, read once per operation."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from paimon_orch.errors import CorruptFileError
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.storage.concurrency import start_call
from paimon_orch.table.expired_reads import repeat_if_expired
from paimon_orch.table.metadata.small_listings import (
    NewestFiles,
    list_newest_files,
    may_list_newest_files,
)
from paimon_orch.table.metadata.snapshot_store import LATEST
from paimon_orch.table.table_stores import TableStores

if TYPE_CHECKING:
    from paimon_orch.table.commit.commit import TableCommit
    from paimon_orch.table.scan.bucket_split import BucketSplit


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState(TableStores):
    """A table as an operation sees it from its plan to its commit, from :meth:`Table.load`.

    Its attributes do no I/O. Pass it down instead of reading the schema or the newest snapshot
    again. Only :meth:`refresh` reads them again: in the conflict loop of a commit, a sensor, or a
    stream that follows the table.
    """

    schema: TableSchema
    snapshot: Snapshot | None
    """None if the table has no snapshot yet."""

    def get_schema(self) -> TableSchema:
        """Return the schema; reads nothing."""
        return self.schema

    def get_snapshot(self) -> Snapshot | None:
        """Return the snapshot; reads nothing."""
        return self.snapshot

    def newest_files(self) -> list["BucketSplit"]:
        """Return the live files of the snapshot; those of a newer one if it expires meanwhile."""
        return _list_newest_files(self, state=self)

    def new_commit(self, step: StepKind, user: str | None = None) -> "TableCommit":
        """Return a commit that was planned with this state; see :meth:`TableStores.new_commit`."""
        commit = TableStores.new_commit(self, step, user)
        commit.planned = self.snapshot
        return commit

    def refresh(self) -> "TableState":
        """Read the newest schema and snapshot again."""
        return load_table_state(self)


@repeat_if_expired
def _list_newest_files(stores: TableStores, *, state: TableState | None) -> list["BucketSplit"]:
    return (state or load_newest_state(stores)).files()


def load_newest_state(stores: TableStores, *, with_lists: bool = False) -> TableState:
    """Read the newest schema and the newest snapshot; see :func:`load_table_state`."""
    return load_table_state(stores, stores.hint.take(), with_lists=with_lists)


def load_table_state(
    stores: TableStores,
    hint: int | None = None,
    *,
    find: Callable[[], Mapping[int, Snapshot | None]] | None = None,
    listed: NewestFiles | None = None,
    with_lists: bool = False,
) -> TableState:
    """Read the newest schema and the newest snapshot at the same time.

    ``hint`` is the hint LATEST if it was just read; ``find`` returns snapshots that the caller
    reads now or has just read, and None for ids that have no file. ``listed`` is what the caller
    has just listed besides. With ``with_lists``, the manifest lists of the snapshot are read
    together with the schema, for a caller that will need them. Raises :class:`NotFoundError` if
    the table has no schema.
    """
    if find is None and stores.snapshots.catalog is None:
        read_schema, snapshot = _read_newest(stores, hint)
    else:
        read_schema = _start_schema(stores, listed)
        snapshot = stores.snapshots.latest_since(hint, {} if find is None else find())
    if with_lists and snapshot is not None:
        stores.manifests.read_lists_ahead([snapshot])
    schema = read_schema()
    if snapshot is not None and snapshot.schema_id > schema.id:  # it was changed in between
        schema = stores.schemas.latest()
    return build_table_state(stores, schema, snapshot)


def _start_schema(stores: TableStores, listed: NewestFiles | None) -> Callable[[], TableSchema]:
    files = None if listed is None else listed.schemas
    return start_call(stores.io, partial(stores.schemas.latest, files))


def _read_newest(
    stores: TableStores, hint: int | None
) -> tuple[Callable[[], TableSchema], Snapshot | None]:
    """Return a function that returns the newest schema, and the newest snapshot.

    The listing that finds the schema also finds whether a snapshot follows the one of the hint. A
    listing with another newest snapshot is older than the hint, or newer, and decides nothing.
    """
    io, snapshots, found = stores.io, stores.snapshots, dict[int, Snapshot | None]()
    if not may_list_newest_files(io, stores.paths):
        return _start_schema(stores, None), snapshots.latest_since(hint)
    list_newest = start_call(io, partial(list_newest_files, io, stores.paths))
    if hint is None:
        hint = snapshots.hint(LATEST)
    else:
        with suppress(CorruptFileError):  # it need not be the newest one
            found[hint] = snapshots.find(hint)
    listed = list_newest()
    read_schema = _start_schema(stores, listed)
    if listed is not None and listed.snapshot_id == (hint or 0):
        if hint is None:
            return read_schema, None
        found[hint + 1] = None
    return read_schema, snapshots.latest_since(hint, found)


def build_table_state(
    stores: TableStores, schema: TableSchema, snapshot: Snapshot | None
) -> TableState:
    """Return the state of a table whose newest schema and snapshot are known; reads nothing."""
    state = TableState(
        identifier=stores.identifier,
        io=stores.io,
        paths=stores.paths,
        allowances=stores.allowances,
        batch_sizes=stores.batch_sizes,
        environment=stores.environment,
        schema=schema,
        snapshot=snapshot,
    )
    for name in ("schemas", "snapshots", "manifests"):
        object.__setattr__(state, name, getattr(stores, name))
    return state
