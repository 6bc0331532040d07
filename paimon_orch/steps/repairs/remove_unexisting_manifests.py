"""Remove missing manifests from the metadata.

Afterwards, the files of the other manifests can be read.

See docs/format/orphan-files.md#removing-lost-manifests.
"""

from collections.abc import Callable, Container
from dataclasses import dataclass, field

from paimon_orch.errors import (
    CorruptFileError,
    PaimonError,
    raise_if_temporary,
    raise_unless_damage,
)
from paimon_orch.format.display import Displayable, format_count
from paimon_orch.format.manifest.manifest_list import ManifestFileMeta
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.steps.common.step import (
    EmptyRequest,
    StepOutcome,
    build_metadata_step,
    plan_and_run,
)
from paimon_orch.steps.common.step_declaration import declare_step
from paimon_orch.steps.common.step_report import PlanReport
from paimon_orch.steps.repairs.tag_before import RESTORE_FILES, describe_tag, tagged_before_repair
from paimon_orch.storage.concurrency import map_concurrently
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.commit.state_replacement import StateReplacement
from paimon_orch.table.metadata.manifest_io import ManifestReader
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState
from paimon_orch.table.table_stores import TableStores


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingManifestsPlan(Displayable):
    """The manifests of the latest snapshot that do not exist; falsy if there are none."""

    request: EmptyRequest = field(default_factory=EmptyRequest)
    state: TableState = field(repr=False, compare=False)
    snapshot: Snapshot | None = None
    paths: tuple[str, ...] = ()
    added_files: int = 0
    """The number of files that the missing manifests added."""
    deleted_files: int = 0
    """The number of files that the missing manifests deleted."""
    comparable_id: int | None = None
    """The newest older snapshot of the table whose manifests all exist."""

    def __bool__(self) -> bool:
        """Return whether any manifest is missing."""
        return bool(self.paths)

    def to_dict(self) -> dict[str, object]:
        """Return the report as JSON values."""
        return {
            "manifests": len(self.paths),
            "added_files": self.added_files,
            "deleted_files": self.deleted_files,
            "comparable_snapshot_id": self.comparable_id,
            "paths": list(self.paths),
        }

    def describe(self) -> PlanReport:
        """Return the plan as text."""
        manifests = format_count(len(self.paths), "missing manifest")
        return PlanReport(
            action=f"remove {manifests} from the metadata",
            consequence=self.describe_loss(),
            lines=self.paths,
            nothing="no manifest is missing",
            asks=bool(self),
            undo=RESTORE_FILES,
        )

    def describe_loss(self) -> str:
        """Say what is lost, and what becomes visible."""
        return (
            f"the files that they added ({self.added_files}) are lost, and those that they deleted "
            f"({self.deleted_files}) are read again if they exist; in a table with a primary key, "
            "older values of the keys become visible again"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingManifestsResult(StepOutcome):
    """The result of the step; ``snapshot`` is None if no manifest was missing."""

    plan: MissingManifestsPlan
    snapshot: Snapshot | None = None
    tag: str | None = None
    """The tag of the state before."""

    def to_dict(self) -> dict[str, object]:
        """Return the plan and the result as JSON values."""
        return self.plan.to_dict() | {"tag": self.tag}

    def describe(self) -> list[str]:
        """Return the removed paths, what to compare, and the tag of the state before."""
        if not self.plan:
            return []
        manifests = format_count(len(self.plan.paths), "missing manifest")
        lines = [*self.plan.paths, f"removed {manifests} from the metadata"]
        if self.plan.comparable_id is not None:
            lines.append(
                f"snapshot {self.plan.comparable_id} is the newest older one with all manifests: "
                "compare the rows with its rows"
            )
        if self.tag is not None:
            lines.append(describe_tag(self.plan.state.label, self.tag))
        return lines


_FindLost = Callable[[TableStores, Snapshot, Container[str]], list[ManifestFileMeta]]
"""Returns the manifests of a snapshot that are lost, by the names that are stored."""


def plan(table: Table, request: EmptyRequest) -> MissingManifestsPlan:
    """Find manifests of the latest snapshot that do not exist.

    Manifest lists and the index manifest must exist.
    """
    return _plan(table, request, _find_missing)


def plan_unreadable(table: Table) -> MissingManifestsPlan:
    """Find manifests of the latest snapshot that do not exist or cannot be read; reads all of them.

    Unreadable ones are kept, because the tag of the state before names them.
    """
    return _plan(table, EmptyRequest(), _find_unreadable)


def _plan(table: Table, request: EmptyRequest, find_lost: _FindLost) -> MissingManifestsPlan:
    state = table.load()
    state.check_step(StepKind.DELETE)
    snapshot, stored = state.snapshot, state.hold()
    if snapshot is None:
        return MissingManifestsPlan(request=request, state=state)
    directory = state.paths.manifest_dir
    listed = {info.name for info in state.io.list_dir(directory)}
    missing = find_lost(stored, snapshot, listed)
    return MissingManifestsPlan(
        request=request,
        state=state,
        snapshot=snapshot,
        paths=tuple(f"{directory}/{meta.file_name}" for meta in missing),
        added_files=sum(meta.num_added_files for meta in missing),
        deleted_files=sum(meta.num_deleted_files for meta in missing),
        comparable_id=_find_comparable(stored, snapshot, listed, find_lost) if missing else None,
    )


def _find_missing(
    state: TableStores, snapshot: Snapshot, listed: Container[str]
) -> list[ManifestFileMeta]:
    unlisted = [
        meta for meta in state.manifests.manifests(snapshot) if meta.file_name not in listed
    ]

    def exists(meta: ManifestFileMeta) -> bool:
        return state.io.exists(f"{state.paths.manifest_dir}/{meta.file_name}")

    # A listing may be outdated or not permitted, so each file is also checked.
    found = map_concurrently(state.io, exists, unlisted)
    return [meta for meta, is_there in zip(unlisted, found, strict=True) if not is_there]


def _find_unreadable(
    state: TableStores, snapshot: Snapshot, _listed: Container[str]
) -> list[ManifestFileMeta]:
    manifests = ManifestReader(state.io, state.paths)  # not cached: they may be damaged

    def can_read(meta: ManifestFileMeta) -> bool:
        try:
            manifests.open(meta)
        except CorruptFileError as error:
            raise_unless_damage(error)
            return False
        return True

    metas = state.manifests.manifests(snapshot)
    are_readable = map_concurrently(state.io, can_read, metas)
    return [meta for meta, can in zip(metas, are_readable, strict=True) if not can]


def _find_comparable(
    state: TableStores, newest: Snapshot, listed: Container[str], find_lost: _FindLost
) -> int | None:
    store = state.snapshots
    earliest = store.earliest_id() or 0
    for number in reversed(store.ids()):
        if earliest <= number < newest.id:
            try:
                missing = find_lost(state, store.get(number), listed)
            except PaimonError as error:
                raise_if_temporary(error)
                continue
            if not missing:
                return number
    return None


def commit(table: Table, plan: MissingManifestsPlan) -> MissingManifestsResult:
    """Commit the state without the manifests in one snapshot.

    First tags the state. Raises :class:`CommitConflictError` if another commit was made since the
    plan.
    """
    if not plan or plan.snapshot is None:
        return MissingManifestsResult(plan=plan)
    names = frozenset(path.rpartition("/")[2] for path in plan.paths)
    replacement = StateReplacement(plan.snapshot, lost_manifests=names)
    changes = CommitChanges(
        kind=CommitKind.OVERWRITE, replacement=replacement, expected_latest=plan.snapshot.id
    )
    with tagged_before_repair(table, plan.snapshot) as tag:
        snapshot = plan.state.new_commit(StepKind.DELETE).commit(changes)
    return MissingManifestsResult(plan=plan, snapshot=snapshot, tag=tag)


REMOVE_UNEXISTING_MANIFESTS = build_metadata_step(
    "remove missing manifests of", plan, commit, max_attempts=1
)


def remove_unexisting_manifests(table: Table) -> MissingManifestsPlan:
    """Remove missing manifests from the metadata in one snapshot; return the removed ones.

    The files that they added are lost, and files that they deleted may be read again: check the
    table afterwards. The tag ``before-repair-<UTC time>`` keeps the state before.
    """
    return plan_and_run(REMOVE_UNEXISTING_MANIFESTS, table, EmptyRequest()).plan


DECLARATION = declare_step(
    REMOVE_UNEXISTING_MANIFESTS,
    EmptyRequest,
    help="Afterwards, the files of the other manifests can be read again. Files that the missing "
    "manifests added are lost, and files that they deleted are read again if they exist: run check "
    "--deep. The tag before-repair-<UTC time> keeps the state before.",
    examples=["/lake db.orders --dry-run"],
    asks=True,
)
