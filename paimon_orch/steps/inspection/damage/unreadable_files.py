"""Finds data files of the newest snapshot that exist and cannot be read."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from paimon_orch.errors import CorruptFileError, MissingFileError, raise_unless_damage
from paimon_orch.files.data_file_reader import BucketFile, FileReader
from paimon_orch.format.display import format_count, format_size
from paimon_orch.format.manifest.manifest_entry import ManifestEntry
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.steps.inspection.snapshot_chain import MAX_SNAPSHOTS
from paimon_orch.table.filter.partition_spec import format_partition
from paimon_orch.table.metadata.manifest_io import ManifestReader
from paimon_orch.table.table_state import TableState


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableFile:
    """A live data file that cannot be read."""

    entry: ManifestEntry
    path: str
    partition: str
    reason: str

    @property
    def name(self) -> str:
        """Return the name of the file."""
        return self.entry.file.file_name

    def __str__(self) -> str:
        """Return a sentence with the place, the size and the error of the file."""
        place = f"partition {self.partition}, " if self.partition else ""
        rows, size = self.entry.file.row_count, self.entry.file.file_size
        return (
            f"the data file {self.name} ({place}bucket {self.entry.bucket}, "
            f"{format_count(rows, 'row')}, {format_size(size)}) cannot be read: {self.reason}"
        )


def find_unreadable_files(
    state: TableState, select: Callable[[str], bool] = lambda _: True
) -> list[UnreadableFile]:
    """Read the data files of a snapshot whose names are selected; return those with errors."""
    if state.snapshot is None:
        return []
    manifests = ManifestReader(state.io, state.paths)  # not cached: they may be damaged
    return [
        UnreadableFile(
            entry=entry,
            path=state.paths.data_file(state.schema, entry.partition, entry.bucket, entry.file),
            partition=format_partition(entry.partition, state.schema),
            reason=error.reason,
        )
        for entry in manifests.read_live_entries(state.snapshot)
        if select(entry.file.file_name) and (error := _try_to_read(state, entry)) is not None
    ]


def _try_to_read(state: TableState, entry: ManifestEntry) -> CorruptFileError | None:
    schema = state.schemas.get(entry.file.schema_id)
    reader = FileReader(state.io, state.paths, schema, {schema.id: schema})
    fields = [*schema.system_fields, *schema.fields]
    try:
        for _ in reader.read(BucketFile(entry.partition, entry.bucket, entry.file), fields):
            pass
    except MissingFileError:  # found without reading
        return None
    except CorruptFileError as error:
        raise_unless_damage(error)
        return error
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateWithoutFiles:
    """The newest older snapshot without some files."""

    snapshot: Snapshot
    has_same_rows: bool
    """Whether only compactions were committed after it."""


def find_state_without(state: TableState, names: Sequence[str]) -> StateWithoutFiles | None:
    """Return the newest of the last snapshots that has none of some files; None without one."""
    has_same_rows = True
    for newer, older in _iterate_pairs(state):
        has_same_rows &= newer.commit_kind is CommitKind.COMPACT
        manifests = ManifestReader(state.io, state.paths)
        live = {entry.file.file_name for entry in manifests.read_live_entries(older)}
        if live.isdisjoint(names):
            return StateWithoutFiles(snapshot=older, has_same_rows=has_same_rows)
    return None


def _iterate_pairs(state: TableState) -> Iterator[tuple[Snapshot, Snapshot]]:
    """Yield the newest snapshots with the one before each, down to the first one not stored."""
    newer, earliest = state.snapshot, state.snapshots.earliest_id() or 0
    for _ in range(MAX_SNAPSHOTS):
        if newer is None or newer.id - 1 < earliest:
            return
        older = state.snapshots.find(newer.id - 1)
        if older is None:
            return
        yield newer, older
        newer = older
