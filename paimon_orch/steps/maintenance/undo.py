"""Take back the newest snapshot.

See docs/format/rollback.md#rollback-procedures.
"""

from datetime import UTC, datetime
from functools import partial

from paimon_orch.errors import InputError
from paimon_orch.format.snapshot import CommitKind, Snapshot
from paimon_orch.safe_text import escape_name
from paimon_orch.steps.common.described_change import ChangePlan, build_change_step
from paimon_orch.steps.common.step import EmptyRequest, run_step
from paimon_orch.steps.common.step_declaration import declare_step
from paimon_orch.steps.common.step_report import PlanReport
from paimon_orch.steps.maintenance import rollback_as_latest
from paimon_orch.table.metadata.time_travel import SnapshotSelector
from paimon_orch.table.table import Table


def plan(table: Table, request: EmptyRequest) -> ChangePlan:
    """Find the newest snapshot, and plan to commit the state before it again."""
    newest = table.history(3)
    if not newest:
        raise InputError(f"{table.identifier} has no snapshot to take back")
    expected_latest = newest[0].id
    latest, *before = newest[1:] if _merges_only_manifests(table, *newest[:2]) else newest
    if not before:
        raise InputError(
            f"{table.identifier} has no snapshot before {latest.id}, the newest; to delete its rows, "
            "use truncate"
        )
    if latest.commit_kind in (CommitKind.COMPACT, CommitKind.ANALYZE):
        raise InputError(
            f"the newest snapshot {latest.id} of {table.identifier} is of the kind "
            f"{latest.commit_kind} and changed no rows; to take back an earlier change, list the "
            "snapshots with 'read DATABASE.TABLE$snapshots', and use 'rollback --as-latest "
            "--snapshot ID' with the snapshot before the change"
        )
    planned = rollback_as_latest.plan(
        table,
        rollback_as_latest.RollbackAsLatestRequest(
            selector=SnapshotSelector(before[0].id), expected_latest=expected_latest
        ),
    )
    time = datetime.fromtimestamp(latest.time_millis / 1000, UTC).isoformat(timespec="seconds")
    change = f"{latest.commit_kind} of {latest.delta_record_count:+,} records"
    return ChangePlan(
        request=request,
        values={
            "undone_snapshot_id": latest.id,
            "commit_kind": latest.commit_kind,
            "commit_user": latest.commit_user,
            "commit_time": time,
            "delta_record_count": latest.delta_record_count,
            **planned.to_dict(),
        },
        report=PlanReport(
            action=f"take back snapshot {latest.id}",
            details=f" ({change} by {escape_name(latest.commit_user)} at {time})",
            asks=True,
            undo="A second undo restores it.",
        ),
        apply=partial(run_step, rollback_as_latest.ROLLBACK_AS_LATEST, table, planned),
    )


def _merges_only_manifests(table: Table, snapshot: Snapshot, *before: Snapshot) -> bool:
    """Return whether a snapshot changes no file; a rollback as latest may commit such a one.

    Compactions that change only indexes or deletion vectors have no entries of data files.
    """
    if snapshot.commit_kind is not CommitKind.COMPACT:
        return False
    if [each.index_manifest for each in before] != [snapshot.index_manifest]:
        return False
    return not table.stores.manifests.read_delta_entries(snapshot)


DECLARATION = declare_step(
    build_change_step("undo the newest snapshot of", plan),
    EmptyRequest,
    help="Commits the state before it as a new snapshot, as rollback --as-latest does; nothing is "
    "deleted, so a second undo restores the change. Schemas and options are not changed.",
    examples=["/lake db.orders --dry-run"],
    asks=True,
)
