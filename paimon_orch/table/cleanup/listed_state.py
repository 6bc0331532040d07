"""Loads a table whose snapshots a deletion has listed, without a second request for the newest one."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from paimon_orch.format.snapshot import Snapshot
from paimon_orch.storage import FileInfo
from paimon_orch.table.cleanup.retained_snapshots import RetainedSnapshot, RetainedSnapshotStore
from paimon_orch.table.metadata.small_listings import NewestFiles
from paimon_orch.table.metadata.snapshot_store import SNAPSHOT_PREFIX, number_files
from paimon_orch.table.table_state import TableState, load_table_state
from paimon_orch.table.table_stores import TableStores


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedState:
    """The state of a table, and the listing of its snapshots from before it was loaded."""

    state: TableState
    entries: Sequence[FileInfo]
    """The listing of the snapshot files."""
    files: dict[int, FileInfo]
    """The snapshot files by id, ascending."""
    read: dict[int, RetainedSnapshot] = field(default_factory=dict)
    """The newest snapshot, if it was read as one of the listed files; callers add others."""


def load_listed_state(
    stores: TableStores, store: RetainedSnapshotStore, listed: NewestFiles | None = None
) -> ListedState:
    """List the snapshots, unless they were just ``listed``, and load the table.

    The file of the newest snapshot is read once, after the listing.
    """
    entries, files = list[FileInfo](), dict[int, FileInfo]()
    read = dict[int, RetainedSnapshot]()

    def list_and_read_newest() -> dict[int, Snapshot | None]:
        entries.extend(listed.snapshots if listed else store.list_snapshots(stores.paths))
        files.update(sorted(number_files(entries, SNAPSHOT_PREFIX).items()))
        found = dict[int, Snapshot | None]()
        for number in list(files)[-1:]:
            version = store.read_snapshot(stores.paths, number, files[number])
            if version is not None and version.snapshot.id == number:
                read[number] = version
                found = {number: version.snapshot, number + 1: None}
        return found

    state = load_table_state(stores, stores.hint.take(), find=list_and_read_newest, listed=listed)
    return ListedState(state=state, entries=entries, files=files, read=read)
