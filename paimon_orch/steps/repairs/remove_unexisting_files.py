"""Remove missing data files from the metadata.

Afterwards, the other files can be read.

See docs/format/orphan-files.md#removing-lost-files.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from paimon_orch.errors import CorruptFileError, InputError, UnsupportedError
from paimon_orch.format.bucket.partition_bucket import PartitionBucket
from paimon_orch.format.display import Displayable, format_count
from paimon_orch.format.manifest.index_manifest import DELETION_VECTORS_INDEX, IndexManifestEntry
from paimon_orch.format.manifest.manifest_entry import ManifestEntry
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.merge.compact.bucket_deletion_vectors import (
    BucketDeletionVectors,
    read_deletion_vectors,
)
from paimon_orch.safe_text import get_logger
from paimon_orch.steps.cleanup.quarantine import Quarantine
from paimon_orch.steps.common.step import (
    EmptyRequest,
    StepOutcome,
    build_metadata_step,
    plan_and_run,
)
from paimon_orch.steps.common.step_declaration import declare_step
from paimon_orch.steps.common.step_report import PlanReport
from paimon_orch.steps.inspection.damage.unreadable_files import find_unreadable_files
from paimon_orch.steps.repairs.older_values import (
    OlderValues,
    find_older_values,
    keeps_newest_write,
    read_older_values,
)
from paimon_orch.steps.repairs.replaced_rows import put_rows_aside
from paimon_orch.steps.repairs.tag_before import RESTORE_FILES, describe_tag, tagged_before_repair
from paimon_orch.storage.base import FileInfo, FileIO
from paimon_orch.storage.concurrency import map_concurrently
from paimon_orch.table.chain.chain_branches import refuse_chain_table
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.metadata.manifest_io import ManifestReader
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState

logger = get_logger(__name__)

_MAX_SHOWN_RANGES = 20
_VISIBLE_ROWS = "visible-again.parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingFilesPlan(Displayable):
    """The live data files that do not exist. The plan is falsy if there are none."""

    request: EmptyRequest = field(default_factory=EmptyRequest)
    state: TableState = field(repr=False, compare=False)
    paths: tuple[str, ...] = ()
    entries: tuple[ManifestEntry, ...] = ()
    older_values: tuple[OlderValues, ...] = ()
    """The rows of other files that may have the same keys.

    Their values, which the missing files have replaced or deleted, become visible again.
    """

    def __bool__(self) -> bool:
        """Return whether any file is missing."""
        return bool(self.paths)

    @property
    def rows(self) -> int:
        """Return the number of physical rows of the missing files."""
        return sum(entry.file.row_count for entry in self.entries)

    @property
    def older_rows(self) -> int:
        """Return the number of physical rows of other files that may have the same keys."""
        return sum(older.rows for older in self.older_values)

    def to_dict(self) -> dict[str, object]:
        """Return the report as JSON values."""
        return {
            "files": len(self.paths),
            "rows": self.rows,
            "older_rows": self.older_rows,
            "older_values": [older.to_dict() for older in self.older_values],
            "paths": list(self.paths),
        }

    def describe(self) -> PlanReport:
        """Return the plan as text."""
        return PlanReport(
            action=f"remove {format_count(len(self.paths), 'missing file')} from the metadata",
            consequence=self.describe_loss(),
            lines=self.paths,
            nothing="no file is missing",
            asks=bool(self),
            undo=RESTORE_FILES,
        )

    def describe_loss(self) -> str:
        """Say what is lost, and which older values become visible."""
        lost = f"{format_count(self.rows, 'row')} of them {'is' if self.rows == 1 else 'are'} lost"
        if not self.older_rows:
            return lost
        values = "older" if keeps_newest_write(self.state.schema) else "other"
        return (
            f"{lost}, and {values} values of the same keys become visible again: other files have "
            f"{format_count(self.older_rows, 'row')} in the same key ranges "
            f"({'; '.join(map(str, self.older_values[:_MAX_SHOWN_RANGES]))})"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingFilesResult(StepOutcome):
    """The result of the step; ``snapshot`` is None if no file was missing."""

    plan: MissingFilesPlan
    snapshot: Snapshot | None = None
    tag: str | None = None
    """The tag of the state before."""
    visible_rows: int = 0
    """The number of rows that readers see now in the key ranges of the missing files."""
    visible_rows_path: str | None = None
    """The Parquet file with these rows."""

    def describe_visible_rows(self) -> str:
        """Say where the rows are that readers see now in the lost key ranges; empty without any."""
        if not self.visible_rows:
            return ""
        rows = format_count(self.visible_rows, "row")
        return (
            f"; {rows} that readers now see in the key ranges of the removed files "
            f"{'is' if self.visible_rows == 1 else 'are'} in {self.visible_rows_path}: compare "
            "these with their source"
        )

    def to_dict(self) -> dict[str, object]:
        """Return the plan and the result as JSON values."""
        return self.plan.to_dict() | {
            "tag": self.tag,
            "visible_rows": self.visible_rows,
            "visible_rows_path": self.visible_rows_path,
        }

    def describe(self) -> list[str]:
        """Return the removed paths, what readers see now, and the tag of the state before."""
        if not self.plan:
            return []
        files = format_count(len(self.plan.paths), "missing file")
        text = f"removed {files} from the metadata{self.describe_visible_rows()}"
        tag = [] if self.tag is None else [describe_tag(self.plan.state.label, self.tag)]
        return [*self.plan.paths, text, *tag]


def plan(table: Table, request: EmptyRequest) -> MissingFilesPlan:
    """Find live data files of the latest snapshot that do not exist, including level 0.

    Raises :class:`InputError` if one of them is in another directory, or has a longer name.
    """
    state = _load(table)
    entries = find_missing_files(state)
    _refuse_moved_files(state, entries)
    return _plan_removal(request, state, entries)


def plan_unreadable(table: Table) -> MissingFilesPlan:
    """Find live data files of the latest snapshot that cannot be read; reads all of them.

    The step removes them from the metadata like missing ones. The files are kept, because the tag of
    the state before needs them.
    """
    state = _load(table)
    entries = {file.path: file.entry for file in find_unreadable_files(state)}
    return _plan_removal(EmptyRequest(), state, entries)


def _load(table: Table) -> TableState:
    state = table.load()
    state.check_step(StepKind.DELETE)
    refuse_chain_table(
        state.identifier,
        state.schema,
        "the removal of missing files",
        "drop the partitions instead",
    )
    return state


def _plan_removal(
    request: EmptyRequest, state: TableState, entries: Mapping[str, ManifestEntry]
) -> MissingFilesPlan:
    removed = tuple(entries.values())
    return MissingFilesPlan(
        request=request,
        state=state,
        paths=tuple(entries),
        entries=removed,
        older_values=find_older_values(state, removed),
    )


def find_missing_files(state: TableState) -> dict[str, ManifestEntry]:
    """Return the live data files of the newest snapshot that do not exist, by path."""
    if state.snapshot is None:
        return {}
    # not cached, because the manifests may be missing too
    manifests = ManifestReader(state.io, state.paths)
    entries = {
        state.paths.data_file(state.schema, entry.partition, entry.bucket, entry.file): entry
        for entry in manifests.read_live_entries(state.snapshot)
    }
    directories = list(dict.fromkeys(map(_parent, entries)))

    def list_names(directory: str) -> set[str]:
        return {info.name for info in state.io.list_dir(directory)}

    names = map_concurrently(state.io, list_names, directories)
    listed = dict(zip(directories, names, strict=True))
    unlisted = [path for path in entries if path.rpartition("/")[2] not in listed[_parent(path)]]
    # A listing may be outdated or not permitted, so each file is also checked.
    found = map_concurrently(state.io, state.io.exists, unlisted)
    return {
        path: entries[path] for path, is_there in zip(unlisted, found, strict=True) if not is_there
    }


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _refuse_moved_files(state: TableState, missing: Mapping[str, ManifestEntry]) -> None:
    """Search missing files in the directories of all partitions and buckets.

    Another writer may have named a directory in another way, or a copy may be incomplete.
    """
    levels = len(state.schema.partition_keys) + 2  # the bucket and the file are levels, too
    expected = {path.rpartition("/")[2]: path for path in missing}
    # A name can be part of another one, and the search shall find the longer.
    names = re.compile("|".join(map(re.escape, sorted(expected, key=len, reverse=True))))
    indexes = {name for entry in missing.values() for name in entry.file.extra_files}
    for root in dict.fromkeys(path.rsplit("/", levels)[0] for path in missing):
        for info in _list_data_files(state.io, root, levels - 1):
            match = None if info.name in indexes else names.search(info.name)
            if match and info.path != expected[match[0]]:
                raise InputError(
                    f"{state.identifier}: {expected[match[0]]} is missing, but {info.path} exists. Move "
                    "it to that place, or delete it if it is another file, and repeat the step. "
                    "Nothing was changed"
                )


def _list_data_files(io: FileIO, directory: str, levels: int) -> Iterator[FileInfo]:
    for info in io.list_dir(directory):
        is_inner = "=" in info.name or info.name.startswith("bucket-")
        if levels and info.is_dir and is_inner:
            yield from _list_data_files(io, info.path, levels - 1)
        elif not info.is_dir:
            yield info


def commit(table: Table, plan: MissingFilesPlan) -> MissingFilesResult:
    """Remove the files and their deletion vectors from the table in one snapshot.

    First tags the state, and puts the rows aside that readers then see in the lost key ranges.
    """
    if not plan:
        return MissingFilesResult(plan=plan)
    state = plan.state.refresh()  # the vectors of files that were added since the plan are kept
    latest = state.snapshot
    if latest is None:
        return MissingFilesResult(plan=plan)
    with tagged_before_repair(table, latest) as tag:
        count, path = _put_visible_rows_aside(table, plan)
        index = rewrite_deletion_vectors(state, {entry.file.file_name for entry in plan.entries})
        entries = tuple(entry.deleted() for entry in plan.entries)
        changes = CommitChanges(kind=CommitKind.OVERWRITE, entries=entries, index=tuple(index))
        snapshot = state.new_commit(StepKind.DELETE).commit(changes)
    return MissingFilesResult(
        plan=plan, snapshot=snapshot, tag=tag, visible_rows=count, visible_rows_path=path
    )


def _put_visible_rows_aside(table: Table, plan: MissingFilesPlan) -> tuple[int, str | None]:
    """Write the rows of the lost key ranges that become visible; return their number and the path.

    Rows that cannot be read do not stop the removal.
    """
    if not plan.older_values:
        return 0, None
    schema = plan.state.schema
    quarantine = Quarantine.of(table, schema)
    folder = quarantine.build_folder_name()
    try:
        rows = read_older_values(table, schema, plan.older_values, plan.entries)
        count = put_rows_aside(quarantine, folder, _VISIBLE_ROWS, rows)
    except (CorruptFileError, UnsupportedError) as error:
        logger.warning(
            "%s: the rows that become visible again cannot be read: %s", table.identifier, error
        )
        return 0, None
    return count, quarantine.build_rows_path(folder, _VISIBLE_ROWS) if count else None


def rewrite_deletion_vectors(state: TableState, names: set[str]) -> Iterable[IndexManifestEntry]:
    """Yield the index entries of buckets without the deletion vectors of some files."""
    schema, io, paths = state.schema, state.io, state.paths
    index = state.manifests.read_index_entries(state.snapshot)
    items_by_bucket: dict[PartitionBucket, list[IndexManifestEntry]] = {}
    for item in index:
        if item.index_type == DELETION_VECTORS_INDEX:
            items_by_bucket.setdefault(item.partition_bucket, []).append(item)
    for partition_bucket, items in items_by_bucket.items():
        if not any(r.data_file in names for item in items for r in item.ranges or ()):
            continue
        vectors = BucketDeletionVectors(read_deletion_vectors(io, paths, schema, items))
        for name in names:
            vectors.drop(name)
        written = vectors.write(io, paths, schema, *partition_bucket)
        if written is not None:
            yield from (item.deleted() for item in items)
            yield written


REMOVE_UNEXISTING_FILES = build_metadata_step(
    "remove missing files of", plan, commit, max_attempts=1
)


def remove_unexisting_files(table: Table) -> MissingFilesPlan:
    """Remove missing data files from the metadata in one snapshot; return the removed files.

    The tag ``before-repair-<UTC time>`` keeps the state before, and the folder ``rows`` of the
    quarantine has the rows that readers then see in the key ranges of the missing files.
    """
    return plan_and_run(REMOVE_UNEXISTING_FILES, table, EmptyRequest()).plan


DECLARATION = declare_step(
    REMOVE_UNEXISTING_FILES,
    EmptyRequest,
    help="Afterwards, the remaining rows of the newest snapshot can be read again. The rows of the "
    "missing files are lost. In a table with a primary key, older values of the same keys become "
    "visible, and are written to a Parquet file of the quarantine. The tag before-repair-<UTC time> "
    "keeps the state before.",
    examples=["/lake db.orders --dry-run"],
    asks=True,
)
