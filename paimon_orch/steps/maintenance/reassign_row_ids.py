"""Give the rows of each partition consecutive row ids, in a table with data evolution.

Only metadata is rewritten. See docs/format/row-tracking.md#reassigning-row-ids.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from paimon_orch.errors import UnsupportedError
from paimon_orch.format.arrays import Indices, Int64Array
from paimon_orch.format.display import Displayable, format_count
from paimon_orch.format.manifest.live_files import UNKNOWN
from paimon_orch.format.options.core_options import DATA_EVOLUTION_REASSIGN_SKIP_ROW_COUNT
from paimon_orch.format.options.table_option import StepKind
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.snapshot import CommitKind
from paimon_orch.merge.tree.row_range_strategy import RowRanges
from paimon_orch.steps.common.partition_request import PartitionRequest
from paimon_orch.steps.common.step import CommittedPlan, build_metadata_step, plan_and_run
from paimon_orch.steps.common.step_declaration import declare_step, take_fields
from paimon_orch.steps.common.step_report import PlanReport
from paimon_orch.table.blob_gate import refuse_blob_columns
from paimon_orch.table.commit.commit_changes import CommitChanges
from paimon_orch.table.commit.row_id_reassignment import RowIdReassignment, RowIdRuns
from paimon_orch.table.scan.data_evolution import has_data_evolution
from paimon_orch.table.scan.partition_selection import plan_live_buckets
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignRowIdsPlan(Displayable):
    """The partitions whose rows get new ids. The plan is falsy if there are none."""

    request: PartitionRequest
    state: TableState = field(repr=False, compare=False)
    reassignment: RowIdReassignment | None = None
    rows: int = 0
    """The number of rows that get new ids, including deleted ones."""

    def __bool__(self) -> bool:
        """Return whether any row gets a new id."""
        return self.reassignment is not None

    def to_dict(self) -> dict[str, object]:
        """Return the counts as JSON values."""
        planned = self.reassignment
        return {
            "partitions": 0 if planned is None else len(planned.runs),
            "rows": self.rows,
            "first_row_id": None if planned is None else planned.next_row_id - self.rows,
            "next_row_id": None if planned is None else planned.next_row_id,
        }

    def describe(self) -> PlanReport:
        """Return the plan as text."""
        return PlanReport(action=f"give new row ids to {self.describe_rows()}")

    def describe_rows(self) -> str:
        """Return the numbers of rows and partitions."""
        partitions = 0 if self.reassignment is None else len(self.reassignment.runs)
        return f"{format_count(self.rows, 'row')} of {format_count(partitions, 'partition')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignRowIdsResult(CommittedPlan[ReassignRowIdsPlan]):
    """The result of a reassignment."""

    def describe(self) -> list[str]:
        """Return which rows have new ids."""
        return [f"{self.plan.describe_rows()}; {self.describe_snapshot()}"]


def plan(table: Table, request: PartitionRequest) -> ReassignRowIdsPlan:
    """Find partitions whose row ids have gaps; reads only metadata.

    Raises :class:`UnsupportedError` for tables without data evolution.
    """
    state = table.load()
    state.check_step(StepKind.COMPACT)
    schema, snapshot = state.schema, state.snapshot
    if not has_data_evolution(schema):
        raise UnsupportedError(
            f"{table.identifier}: only tables with 'data-evolution.enabled' = true can get new row "
            "ids; the rows of other tables have ids in their files"
        )
    refuse_blob_columns(table.identifier, schema, "an assignment of new row ids")
    if snapshot is None or not schema.partition_keys:
        return ReassignRowIdsPlan(request=request, state=state)
    buckets = plan_live_buckets(state, schema, snapshot, request)
    files, rows = buckets.groups.files, buckets.groups.rows
    assert files.first_row_ids is not None
    if (files.first_row_ids[rows] == UNKNOWN).any():
        raise UnsupportedError(f"{table.identifier} has files without row ids; compact it first")
    if not len(rows):
        return ReassignRowIdsPlan(request=request, state=state)
    ranges = RowRanges.of(files, rows)
    limit = schema.typed_options.get(DATA_EVOLUTION_REASSIGN_SKIP_ROW_COUNT)
    first_row_id = next_row_id = snapshot.next_row_id or 0
    by_partition = _find_gaps(ranges, limit)
    runs = {}
    for code in _sort_partitions(files.partitions, list(by_partition), schema):
        starts, ends = by_partition[code]
        offsets = np.cumsum(ends - starts)
        new_starts = next_row_id + offsets - (ends - starts)
        runs[files.partitions[code]] = RowIdRuns(starts, ends, new_starts)
        next_row_id += int(offsets[-1])
    if not runs:
        return ReassignRowIdsPlan(request=request, state=state)
    reassignment = RowIdReassignment(snapshot_id=snapshot.id, runs=runs, next_row_id=next_row_id)
    return ReassignRowIdsPlan(
        request=request,
        state=state,
        reassignment=reassignment,
        rows=next_row_id - first_row_id,
    )


def _find_gaps(ranges: RowRanges, limit: int) -> dict[int, tuple[Int64Array, Int64Array]]:
    """Return the starts and ends of contiguous ids of the partitions with gaps.

    Leaves out contiguous ids of more than ``limit`` rows, unless it is 0.
    """
    firsts: Indices = np.flatnonzero(~ranges.follows)
    starts, codes = ranges.first_row_ids[firsts], ranges.partition_codes[firsts]
    ends = ranges.end_row_ids[np.append(firsts[1:], len(ranges.follows)) - 1]
    if limit > 0:
        is_short = ends - starts <= limit
        starts, ends, codes = starts[is_short], ends[is_short], codes[is_short]
    runs = {}
    for code, count in zip(*np.unique(codes, return_counts=True), strict=True):
        if count > 1:
            of_partition = codes == code
            runs[int(code)] = starts[of_partition], ends[of_partition]
    return runs


def _sort_partitions(
    partitions: Sequence[bytes], codes: Sequence[int], schema: TableSchema
) -> list[int]:
    """Order partitions by their values, null first."""

    def key(code: int) -> list[tuple[bool, object]]:
        values = schema.decode_partition(partitions[code])
        return [(value is not None, value) for value in values]

    return sorted(codes, key=key)


def commit(_table: Table, plan: ReassignRowIdsPlan) -> ReassignRowIdsResult:
    """Commit the new ids in one snapshot; any other commit since the plan is a conflict."""
    if not plan:
        return ReassignRowIdsResult(plan=plan)
    changes = CommitChanges(kind=CommitKind.OVERWRITE, reassignment=plan.reassignment)
    snapshot = plan.state.new_commit(StepKind.COMPACT).commit(changes)
    return ReassignRowIdsResult(plan=plan, snapshot=snapshot)


REASSIGN_ROW_IDS = build_metadata_step("reassign row ids of", plan, commit)


@take_fields(PartitionRequest)
def reassign_row_ids(table: Table, request: PartitionRequest) -> ReassignRowIdsResult:
    """Give the rows of each partition consecutive ids, so that compactions can join their files.

    Does nothing for tables without partitions. Global indexes keep their rows, or are dropped if
    these are no longer consecutive. After a conflict with another commit, the ids are planned
    again, at most three times; then :class:`CommitConflictError` is raised.
    """
    return plan_and_run(REASSIGN_ROW_IDS, table, request)


DECLARATION = declare_step(
    REASSIGN_ROW_IDS,
    PartitionRequest,
    help="Compactions join only files of consecutive ids, and writers of several partitions leave "
    "gaps. Rewrites only metadata.",
    examples=["/lake db.events --dry-run"],
)
