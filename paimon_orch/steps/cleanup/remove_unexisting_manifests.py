"""Removes missing manifests from the metadata, so that the files of the others can be read.

See docs/format/orphan-files.md#removing-lost-manifests.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from paimon_orch.format.display import Displayable
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.steps.common.step import (
    EmptyRequest,
    StepOutcome,
    build_metadata_step,
    run_step,
)
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.commit.state_replacement import StateReplacement
from paimon_orch.table.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingManifestsPlan(Displayable):
    """The manifests of the latest snapshot that do not exist; falsy if there are none."""

    request: EmptyRequest = field(default_factory=EmptyRequest)
    snapshot: Snapshot | None = None
    paths: tuple[str, ...] = ()
    added_files: int = 0
    """The number of files that the missing manifests added."""
    deleted_files: int = 0
    """The number of files that the missing manifests deleted."""

    def __bool__(self) -> bool:
        """Return whether any manifest is missing."""
        return bool(self.paths)

    def to_dict(self) -> dict[str, object]:
        """Return the report as JSON values."""
        return {
            "manifests": len(self.paths),
            "added_files": self.added_files,
            "deleted_files": self.deleted_files,
            "paths": list(self.paths),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingManifestsResult(StepOutcome):
    """The result of the step; ``snapshot`` is None if no manifest was missing."""

    plan: MissingManifestsPlan
    snapshot: Snapshot | None = None


def plan(table: Table, request: EmptyRequest) -> MissingManifestsPlan:
    """Find manifests of the latest snapshot that do not exist.

    Manifest lists and the index manifest must exist.
    """
    table.stores.check_step(StepKind.DELETE)
    snapshot = table.stores.snapshots.latest()
    if snapshot is None:
        return MissingManifestsPlan(request=request)
    directory = table.paths.manifest_dir
    listed = {info.name for info in table.io.list_dir(directory)}
    missing = [
        meta
        for meta in table.stores.manifests.manifests(snapshot)
        # A listing may be outdated or not permitted, so each file is also checked.
        if meta.file_name not in listed and not table.io.exists(f"{directory}/{meta.file_name}")
    ]
    return MissingManifestsPlan(
        request=request,
        snapshot=snapshot,
        paths=tuple(f"{directory}/{meta.file_name}" for meta in missing),
        added_files=sum(meta.num_added_files for meta in missing),
        deleted_files=sum(meta.num_deleted_files for meta in missing),
    )


def commit(
    table: Table, plan: MissingManifestsPlan, _results: Sequence[bytes] = ()
) -> MissingManifestsResult:
    """Commit the state without the manifests in one snapshot.

    Raises :class:`CommitConflictError` if another commit was made since the plan.
    """
    if not plan or plan.snapshot is None:
        return MissingManifestsResult(plan=plan)
    names = frozenset(path.rpartition("/")[2] for path in plan.paths)
    replacement = StateReplacement(plan.snapshot, lost_manifests=names)
    changes = CommitChanges(
        kind=CommitKind.OVERWRITE, replacement=replacement, expected_latest=plan.snapshot.id
    )
    snapshot = table.stores.new_commit(StepKind.DELETE).commit(changes)
    return MissingManifestsResult(plan=plan, snapshot=snapshot)


REMOVE_UNEXISTING_MANIFESTS = build_metadata_step(
    "remove missing manifests of", plan, commit, max_attempts=1
)


def remove_unexisting_manifests(table: Table) -> MissingManifestsPlan:
    """Remove missing manifests from the metadata in one snapshot; return the removed ones.

    The files that they added are lost, and files that they deleted may be read again: check the
    table afterwards.
    """
    return run_step(REMOVE_UNEXISTING_MANIFESTS, table, plan(table, EmptyRequest())).plan
