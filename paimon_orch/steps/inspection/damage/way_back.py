"""Finds snapshots that cannot be read, and what a table with such a newest one is rolled back to.

See docs/doctor.md#repair.
"""

import shlex
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from paimon_orch.errors import PaimonError, raise_if_temporary, raise_unless_damage
from paimon_orch.format.manifest.manifest_list import ManifestFileMeta
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.steps.inspection.index_damage import find_index_damage
from paimon_orch.steps.inspection.inspect import inspect_snapshot
from paimon_orch.steps.inspection.snapshot_chain import MAX_SNAPSHOTS
from paimon_orch.storage.concurrency import map_concurrently, read_ahead
from paimon_orch.table.metadata.time_travel import SnapshotSelector
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import build_table_state
from paimon_orch.table.table_stores import TableStores


@dataclass(frozen=True, slots=True, kw_only=True)
class WayBack:
    """The newest state of a table whose metadata can be read."""

    snapshot: Snapshot
    tag: str | None = None
    """The tag that has the snapshot, if its own file does not."""

    def __str__(self) -> str:
        """Return the name of the state."""
        tag = "" if self.tag is None else f" of the tag {self.tag}"
        return f"snapshot {self.snapshot.id}{tag}"

    @property
    def selector(self) -> SnapshotSelector:
        """Return what selects the state in a rollback."""
        if self.tag is None:
            return SnapshotSelector(self.snapshot.id)
        return SnapshotSelector(tag=self.tag)

    @property
    def command(self) -> str:
        """Return the command that rolls back to the state."""
        if self.tag is None:
            return f"rollback --snapshot {self.snapshot.id}"
        return f"rollback --tag {shlex.quote(self.tag)}"


def find_way_back(table: Table) -> WayBack | None:
    """Return the newest snapshot or tag whose metadata can be read; None if there is none.

    Reads schemas, manifest lists and manifests, but no data files. A tag has a copy of its
    snapshot, so it can replace the snapshot's damaged file.
    """
    stores = table.stores.hold()
    candidates = sorted(
        _list_candidates(stores), key=lambda each: (each.snapshot.id, each.tag is None)
    )
    return next((each for each in reversed(candidates) if is_readable(stores, each.snapshot)), None)


def try_to_find_way_back(table: Table) -> WayBack | None:
    """Return what :func:`find_way_back` returns; None if it fails."""
    try:
        return find_way_back(table)
    except (PaimonError, OSError) as error:
        raise_if_temporary(error)
        return None


def _list_candidates(stores: TableStores) -> Iterator[WayBack]:
    store = stores.snapshots

    def read_snapshot(number: int) -> WayBack:
        return WayBack(snapshot=store.get(number))

    def read_tag(name: str) -> WayBack:
        return WayBack(snapshot=store.tag(name), tag=name)

    reads = [partial(read_snapshot, number) for number in store.list_retained_ids()]
    reads += [partial(read_tag, name) for name in store.tags()]
    found = map_concurrently(stores.io, _try_read, reads)
    return (each for each in found if each is not None)


def _try_read(read: Callable[[], WayBack]) -> WayBack | None:
    try:
        return read()
    except PaimonError as error:
        raise_if_temporary(error)
        return None


def is_readable(stores: TableStores, snapshot: Snapshot) -> bool:
    """Return whether the metadata of a snapshot can be read, and has its deletion vectors."""
    try:
        state = build_table_state(stores, stores.schemas.get(snapshot.schema_id), snapshot)
        live = inspect_snapshot(state, snapshot).live
        return live is None or not find_index_damage(state, snapshot, live).missing_vectors
    except (PaimonError, OSError) as error:
        raise_if_temporary(error)
        return False


def can_read_lists(stores: TableStores, snapshot: Snapshot) -> bool:
    """Return whether the schema, the manifest lists and the index manifest can be read."""
    try:
        _read_lists(stores, snapshot)
    except (PaimonError, OSError) as error:
        raise_unless_damage(error)
        return False
    return True


def _read_lists(stores: TableStores, snapshot: Snapshot) -> None:
    stores.schemas.get(snapshot.schema_id)
    stores.manifests.manifests(snapshot)
    stores.manifests.read_index_entries(snapshot)


def find_unreadable_snapshots(table: Table) -> dict[int, Exception]:
    """Return the errors of snapshots before the newest one that cannot be read, by ascending id.

    Reads all snapshot files, and the lists and manifests of the newest snapshots. Returns nothing if
    a catalog makes the commits, or if the newest snapshot cannot be read either.
    """
    stores = table.stores.hold()
    store = stores.snapshots
    latest = None if store.catalog is not None else store.latest()
    if latest is None:
        return {}
    _read_manifests_ahead(stores, [latest.id])
    if _find_error(stores, latest.id, latest.id):  # that is repaired first
        return {}
    older = [number for number in store.list_retained_ids() if number < latest.id]
    read_ahead(stores.io, (partial(store.find, number) for number in older))
    _read_manifests_ahead(stores, (each for each in older if each > latest.id - MAX_SNAPSHOTS))
    errors = {number: _find_error(stores, number, latest.id) for number in older}
    return {number: error for number, error in errors.items() if error is not None}


def _read_manifests_ahead(stores: TableStores, numbers: Iterable[int]) -> None:
    """Read the lists and manifests of snapshots, several at the same time, if they can be read."""
    snapshots, manifests = list[Snapshot](), dict[str, ManifestFileMeta]()
    for number in numbers:
        with _tolerate_damage():
            snapshots += filter(None, [stores.snapshots.find(number)])
    stores.manifests.read_lists_ahead(snapshots)
    for snapshot in snapshots:
        with _tolerate_damage():
            manifests |= {meta.file_name: meta for meta in stores.manifests.manifests(snapshot)}
    read_ahead(stores.io, (partial(stores.manifests.open, meta) for meta in manifests.values()))


@contextmanager
def _tolerate_damage() -> Iterator[None]:
    try:
        yield
    except PaimonError as error:
        raise_unless_damage(error)


def _find_error(stores: TableStores, number: int, newest: int) -> Exception | None:
    """Return why a snapshot cannot be read; None if it can be, or has expired."""
    try:
        snapshot = stores.snapshots.find(number)
        if snapshot is None or number <= newest - MAX_SNAPSHOTS:
            return None
        for meta in stores.manifests.manifests(snapshot):
            stores.manifests.open(meta)
        _read_lists(stores, snapshot)
    except (PaimonError, OSError) as error:
        raise_unless_damage(error)
        return error if stores.snapshots.exists(number) else None
    return None
