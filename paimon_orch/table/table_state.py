"""The state of a table at one moment: its newest schema and snapshot, read once per operation."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.storage.concurrency import start_call
from paimon_orch.table.table_stores import TableStores

if TYPE_CHECKING:
    from paimon_orch.table.commit.commit import TableCommit


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

    def new_commit(self, step: StepKind, user: str | None = None) -> "TableCommit":
        """Return a commit that was planned with this state; see :meth:`TableStores.new_commit`."""
        commit = TableStores.new_commit(self, step, user)
        commit.planned = self.snapshot
        return commit

    def refresh(self) -> "TableState":
        """Read the newest schema and snapshot again."""
        return load_table_state(self, None if self.snapshot is None else self.snapshot.id)


def load_newest_state(stores: TableStores, *, with_lists: bool = False) -> TableState:
    """Read the newest schema and the newest snapshot; see :func:`load_table_state`."""
    return load_table_state(stores, stores.hint.take(), with_lists=with_lists)


def load_table_state(
    stores: TableStores,
    newest_id: int | None = None,
    *,
    find: Callable[[], Mapping[int, Snapshot | None]] = dict,
    with_lists: bool = False,
) -> TableState:
    """Read the newest schema and the newest snapshot at the same time.

    ``newest_id`` was the id of the newest snapshot at an earlier time; ``find`` returns snapshots
    that the caller reads now or has just read, and None for ids that have no file. With
    ``with_lists``, the manifest lists of the snapshot are read together with the schema, for a
    caller that will need them. Raises :class:`NotFoundError` if the table has no schema.
    """
    read_schema = start_call(stores.io, stores.schemas.latest)
    snapshot = stores.snapshots.latest_since(newest_id, find())
    if with_lists and snapshot is not None:
        stores.manifests.read_lists_ahead([snapshot])
    schema = read_schema()
    if snapshot is not None and snapshot.schema_id > schema.id:  # it was changed in between
        schema = stores.schemas.latest()
    return build_table_state(stores, schema, snapshot)


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
