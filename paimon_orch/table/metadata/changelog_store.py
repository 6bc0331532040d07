"""Finds, reads and writes changelogs: snapshot files that are retained after an expiration.

See docs/format/snapshot-expiration.md#changelogs.
"""

from dataclasses import dataclass

from paimon_orch.format.paths import TablePaths
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.storage import FileIO
from paimon_orch.table.metadata.metadata_io import read_metadata_file
from paimon_orch.table.metadata.snapshot_store import (
    EARLIEST,
    LATEST,
    list_numbered_files,
    read_hint,
)

CHANGELOG_PREFIX = "changelog-"


@dataclass(frozen=True, slots=True)
class ChangelogStore:
    """The changelogs of one table and branch."""

    io: FileIO
    paths: TablePaths

    def path(self, snapshot_id: int) -> str:
        """Return the path of the changelog of a snapshot."""
        return f"{self.paths.changelog_dir}/{CHANGELOG_PREFIX}{snapshot_id}"

    def ids(self) -> list[int]:
        """List the ids of all snapshots with a changelog, ascending."""
        return list_numbered_files(self.io, self.paths.changelog_dir, CHANGELOG_PREFIX)

    def hint(self, name: str) -> int | None:
        """Return the number in a hint file, or None if it is missing or not a positive number."""
        return read_hint(self.io, self._hint_path(name))

    def get(self, snapshot_id: int) -> Snapshot:
        """Read one changelog; raises ``FileNotFoundError``."""
        path = self.path(snapshot_id)
        return Snapshot.from_json(read_metadata_file(self.io, path), path)

    def delete_after(self, newest: int) -> None:
        """Delete the changelogs after a snapshot, newest first, and then the hints."""
        later = [snapshot_id for snapshot_id in self.ids() if snapshot_id > newest]
        for snapshot_id in reversed(later):
            self.io.delete(self.path(snapshot_id))
        if later:
            for name in (LATEST, EARLIEST):  # without hints, readers list the directory
                self.io.delete(self._hint_path(name))

    def write_hint(self, name: str, snapshot_id: int) -> None:
        """Overwrite a hint file."""
        self.io.write(self._hint_path(name), str(snapshot_id).encode())

    def _hint_path(self, name: str) -> str:
        return f"{self.paths.changelog_dir}/{name}"
