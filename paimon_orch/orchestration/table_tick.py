"""One evaluation of a table: whether it has news, and which of its runs are requested now.

An evaluation starts no Spark. If there is nothing new, it takes one or two requests.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.errors import UnsupportedError
from paimon_orch.format.display import format_count
from paimon_orch.format.options.blocking_options import NO_ALLOWANCES, Allowances
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.orchestration.changes_since_cursor import (
    ChangesSinceCursor,
    find_next_snapshots,
    is_latest_snapshot,
)
from paimon_orch.orchestration.cursor import Cursor
from paimon_orch.orchestration.planned_runs import PlannedRun
from paimon_orch.steps.compaction.decide import find_problems_of, sum_metrics
from paimon_orch.steps.compaction.policy import CompactionPolicy
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState, load_table_state

_MAX_DECISIONS_IN_REASON = 3


@dataclass(frozen=True, slots=True)
class TableTick:
    """A table that has to be evaluated."""

    table: Table
    state: TableState
    found: Mapping[int, Snapshot]
    """Snapshots that were read before the table was loaded."""


def open_table_with_news(
    catalog: Catalog,
    name: str,
    cursor: Cursor | None,
    policy: CompactionPolicy,
    allowances: Allowances = NO_ALLOWANCES,
) -> TableTick | None:
    """Load a table, or return None if it has nothing new since the cursor and nothing overdue.

    ``allowances`` are added to those of the catalog. Raises :class:`NotFoundError` if there is no
    such table.
    """
    found = _find_news(catalog, name, cursor, policy)
    if found is None:
        return None
    # a snapshot in the place of the table shows that the table exists
    opened = catalog.locate(name) if found else catalog.table(name)
    table = replace(opened, allowances=opened.allowances | allowances)
    state = load_table_state(table.stores, table.hint.take(), find=lambda: found)
    return TableTick(table, state, found)


def _find_news(
    catalog: Catalog, table: str, cursor: Cursor | None, policy: CompactionPolicy
) -> Mapping[int, Snapshot] | None:
    """Return the snapshots that show that there is something new, or None if there is nothing.

    The snapshots are empty if the table must be evaluated anyway. As a snapshot of a recreated
    table has another commit time, such a table has news.
    """
    if cursor is None or cursor.pending or cursor.find_overdue(policy.wait_millis):
        return {}
    latest = catalog.served_snapshot(table)
    if latest is not None:
        found: Mapping[int, Snapshot] = {latest.id: latest}
    else:
        found = find_next_snapshots(catalog.locate(table).stores.snapshots, cursor.handled)
    return None if is_latest_snapshot(found, cursor.handled) else found


def find_compaction_refusal(state: TableState) -> str:
    """Return why the table's options forbid compaction, or an empty string if they allow it."""
    try:
        state.check_step(StepKind.COMPACT)
    except UnsupportedError as error:
        return str(error)
    return ""


def postpone_runs(
    cursor: Cursor, postponed: Sequence[PlannedRun], suffixes: Mapping[str, str]
) -> Cursor:
    """Return the cursor with the partitions of the runs that are not requested yet."""
    pending = {path: suffixes[path] for run in postponed for path in run.paths}
    return replace(cursor, pending=pending)


def explain_no_run(table: Table, changes: ChangesSinceCursor) -> str:
    """Return why no run is requested, with the decisions about the slowest partitions."""
    slowest_first = sorted(
        (decision for decision in changes.decisions if not decision.compact),
        key=lambda each: (-each.metrics.sorted_runs, -each.metrics.small_files),
    )
    reasons = [*map(str, slowest_first)]
    message = (
        f"{table.identifier}: nothing to compact up to snapshot "
        f"{changes.cursor.handled.snapshot_id}"
    )
    parts = [message, *reasons[:_MAX_DECISIONS_IN_REASON]]
    if len(reasons) > _MAX_DECISIONS_IN_REASON:
        parts.append(f"and {format_count(len(reasons) - _MAX_DECISIONS_IN_REASON, 'other')}")
    if changes.whole_table_reason is not None:  # there are decisions about all partitions
        problems = find_problems_of(sum_metrics([each.metrics for each in changes.decisions]))
        if problems:
            command = table.stores.label.format_command("why")
            parts.append(f"in all partitions: {', '.join(map(str, problems))}: see `{command}`")
    return "; ".join(parts)
