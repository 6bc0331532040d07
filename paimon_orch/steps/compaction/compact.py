"""Merge sorted runs, or merge small files."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from paimon_orch.errors import InputError, MissingFileError, NotFoundError
from paimon_orch.format.options.core_options import PK_BITMAP_INDEX_COLUMNS, PK_BTREE_INDEX_COLUMNS
from paimon_orch.format.partition_path import format_partition_values
from paimon_orch.format.schema import TableSchema
from paimon_orch.steps.common.bucket_scan import (
    PARTITION_JUDGE,
    BucketScan,
    Judge,
    scan_latest_buckets,
)
from paimon_orch.steps.common.conflict_retry import discard_messages
from paimon_orch.steps.common.executor import Executor, Progress
from paimon_orch.steps.common.executor_choice import find_frames, may_have_frames
from paimon_orch.steps.common.partition_request import (
    PartitionRequest,
    check_partitions_exist,
    require_partitions,
)
from paimon_orch.steps.common.step import Step, run_step
from paimon_orch.steps.common.step_declaration import declare_step, take_fields
from paimon_orch.steps.compaction.bucket_selection import (
    check_buckets,
    restrict_to_buckets,
    select_idle,
)
from paimon_orch.steps.compaction.kind_compaction import find_compaction
from paimon_orch.steps.compaction.plan import (
    CompactionPlan,
    CompactionResult,
    CompactionUnit,
    CompactRequest,
    collect_work,
    run,
)
from paimon_orch.steps.compaction.policy import CompactionDecision, CompactionStrategy
from paimon_orch.table.expired_reads import repeat_if_expired
from paimon_orch.table.filter.partition_spec import PartitionSpec
from paimon_orch.table.scan.partition_selection import PartitionSpecs
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import TableState
from paimon_orch.table.write.commit_message import CommitMessage
from paimon_orch.table.write.postpone_bucket import has_postpone_buckets

__all__ = [
    "COMPACT",
    "CompactRequest",
    "CompactionPlan",
    "CompactionResult",
    "CompactionStrategy",
    "CompactionUnit",
    "PartitionSpecs",
    "commit",
    "compact",
    "compact_written_partitions",
    "move_postponed_and_replan",
    "plan",
    "run",
    "run_compaction",
]

_NO_FRAMES = "order_by sorts on Spark: it cannot be used with --executor local, or without the package pyspark"


@repeat_if_expired
def plan(
    table: Table,
    request: CompactRequest,
    *,
    scan: BucketScan | None = None,
    executor: Executor | None = None,
    state: TableState | None = None,
) -> CompactionPlan:
    """Plan a compaction of the latest snapshot; reads only metadata.

    ``scan`` has the selected buckets, if the caller needs them too, and ``state`` the table, if the
    caller has loaded it. The executor, by default this process, reads the manifests of tables with
    more than five million files.

    ``minor`` follows the table's options. With deletion vectors, it compacts all files of level 0,
    and rewrites files with mostly deleted rows. In append tables, it merges small files if there
    are enough of them. Raises :class:`UnsupportedError` for tables that cannot be compacted.
    """
    if request.order_by is not None:
        return _plan_sort(table, request, state)
    state = state or (table.load(with_lists=True) if scan is None else scan.state)
    schema = state.schema
    if request.cluster_idle_for is not None:
        _check_clustered(table.identifier, schema)
    if request.up_to_level is not None:
        _check_merges_levels(table.identifier, schema, request)
    if request.buckets is not None:
        check_buckets(schema, request.buckets, table.identifier)
    scan = scan or scan_latest_buckets(state, request, executor, now=request.now)
    selected = request
    if request.idle_for is not None and scan is not None:
        selected = select_idle(request, scan)
        scan = scan_latest_buckets(state, selected, executor, now=request.now)
    plan = replace(find_compaction(schema).plan(state, selected, scan), request=request)
    if request.buckets is not None:
        plan = restrict_to_buckets(plan, request.buckets)
    if not has_postpone_buckets(schema):
        return plan
    from paimon_orch.steps.compaction import move_postponed as postpone

    selection = postpone.MovePostponedRequest(partitions=selected.partitions, where=selected.where)
    return replace(plan, postponed=postpone.plan(table, selection, state=state))


def _plan_sort(table: Table, request: CompactRequest, state: TableState | None) -> CompactionPlan:
    from paimon_orch.steps.compaction import sort_compact

    assert request.order_by is not None
    order = sort_compact.SortOrder(tuple(request.order_by), request.order_strategy or "order")
    selected = sort_compact.SortRequest(
        partitions=request.partitions, where=request.where, order=order
    )
    return sort_compact.plan(table, selected, state=state)


def _check_clustered(identifier: str, schema: TableSchema) -> None:
    if not schema.is_clustered:
        raise InputError(
            f"{identifier}: idle partitions are sorted only in append tables with "
            "'clustering.incremental' = true"
        )


def _check_merges_levels(identifier: str, schema: TableSchema, request: CompactRequest) -> None:
    if not schema.has_runs_sorted_by_key or request.strategy == "full":
        raise InputError(
            f"{identifier}: sorted runs up to a level are merged only in primary-key tables "
            "without 'pk-clustering-override', by the strategy minor"
        )


def build_judge(scan: BucketScan, request: CompactRequest) -> Judge:
    """Return the judge of a plan, to judge its scan also for something else."""
    return find_compaction(scan.schema).build_judge(scan, request)


def _replan(table: Table, request: CompactRequest, executor: Executor | None) -> CompactionPlan:
    return plan(table, request, executor=executor)


def commit(
    table: Table, plan: CompactionPlan, messages: Sequence[CommitMessage]
) -> CompactionResult:
    """Commit the results of all units, in the order of the units, in one snapshot.

    Raises :class:`CommitConflictError`, and deletes the new files, if another commit changed the
    same buckets.
    """
    return find_compaction(plan.state.schema).commit(table, plan, messages)


COMPACT = Step(
    title="compact",
    planner=plan,
    replan=_replan,
    work=collect_work,
    run=run,
    decode=CommitMessage.decode,
    commit=commit,
    discard=discard_messages,
)


def run_compaction(
    table: Table,
    plan: CompactionPlan,
    executor: Executor | None = None,
    *,
    progress: Progress | None = None,
) -> CompactionResult:
    """Execute a plan: move its postponed rows, compact, then build missing indexes of columns.

    Rows are sorted on Spark: raises :class:`InputError` for an executor without data frames.
    """
    if not isinstance(plan.request, CompactRequest):  # a sort
        frames = None if executor is None else find_frames(executor)
        if frames is None:
            raise InputError(_NO_FRAMES)
        return frames.sort_rows(table, plan, progress)
    moved_rows = 0
    if plan.postponed:
        moved_rows = plan.postponed.rows
        plan = move_postponed_and_replan(table, plan, executor, progress=progress)
    result = run_step(COMPACT, table, plan, executor, progress=progress)
    if builds_key_indexes(plan.state.schema):
        from paimon_orch.steps.compaction.key_indexes import build_key_indexes

        request = plan.request
        build_key_indexes(
            table, executor, partitions=request.partitions, where=request.where, progress=progress
        )
    return replace(result, moved_rows=moved_rows)


def builds_key_indexes(schema: TableSchema) -> bool:
    """Return whether a compaction also builds indexes of columns of a primary-key table."""
    options = schema.typed_options
    if not options.get(PK_BTREE_INDEX_COLUMNS) and not options.get(PK_BITMAP_INDEX_COLUMNS):
        return False
    from paimon_orch.steps.compaction.key_indexes import find_key_indexes

    return bool(find_key_indexes(schema))


def move_postponed_and_replan(
    table: Table,
    plan: CompactionPlan,
    executor: Executor | None = None,
    *,
    progress: Progress | None = None,
) -> CompactionPlan:
    """Move the postponed rows of a plan to buckets; return a new plan for the compaction.

    The compaction must be planned again, because the move adds files to the buckets.
    """
    from paimon_orch.steps.compaction.move_postponed import MOVE_POSTPONED

    assert plan.postponed is not None
    run_step(MOVE_POSTPONED, table, plan.postponed, executor, progress=progress)
    assert isinstance(plan.request, CompactRequest)
    return _replan(table, plan.request, executor)


@take_fields(CompactRequest)
def compact(
    table: Table, request: CompactRequest, executor: Executor | None, progress: Progress | None
) -> CompactionResult:
    """Compact a table, or some partitions, in one snapshot.

    Moves postponed rows first, in a separate snapshot. Commits no snapshot if there is nothing to
    do. After a conflict with another commit, the work is planned again, at most three times; then
    :class:`CommitConflictError` is raised, and the table is not compacted.
    """
    planned = plan_existing_partitions(table, request, executor=executor)
    return run_compaction(table, planned, executor, progress=progress)


@repeat_if_expired
def plan_existing_partitions(
    table: Table,
    request: CompactRequest,
    *,
    executor: Executor | None = None,
    with_decisions: bool = False,
) -> CompactionPlan:
    """Plan as :func:`plan` does; reads the manifests once.

    ``with_decisions`` adds what the default policy of sensors decides. Raises
    :class:`NotFoundError` for a requested partition that has no files.
    """
    if request.order_by is not None:
        if executor is None or not may_have_frames(executor):
            raise InputError(_NO_FRAMES)
        require_partitions(table, request.partitions)
        planned = plan(table, request)
        return replace(planned, decisions=()) if with_decisions else planned
    state = table.load(with_lists=True)
    scan = scan_latest_buckets(state, request, executor, now=request.now)
    if scan is not None:
        judges = [build_judge(scan, request)]
        if request.partitions is not None and request.where is None:
            judges.append(PARTITION_JUDGE)
        if with_decisions:
            from paimon_orch.steps.compaction.decide import PolicyJudge

            judges.append(PolicyJudge(now=scan.now))
        scan.judge_together(judges)
    if request.partitions is not None:
        all_buckets = scan  # but a filter excludes partitions that exist
        if request.where is not None:
            selection = PartitionRequest(partitions=request.partitions)
            all_buckets = scan_latest_buckets(state, selection, executor)
        check_partitions_exist(state, request.partitions, all_buckets)
    planned = plan(table, request, scan=scan, executor=executor, state=state)
    decisions: Sequence[CompactionDecision] | None = None
    if with_decisions:
        from paimon_orch.steps.compaction.decide import decide

        decisions = [] if scan is None else decide(table, scan=scan)
    return replace(planned, decisions=decisions)


def compact_written_partitions(
    table: Table, snapshot_id: int, executor: Executor, *, progress: Progress | None = None
) -> CompactionResult:
    """Compact the partitions that a commit wrote to, with strategy ``minor``.

    All partitions, if the snapshot has expired.
    """
    state = table.load()
    specs = None
    with suppress(MissingFileError, NotFoundError):
        specs = _find_written_partitions(state, snapshot_id)
    # the commit may have emptied a partition, so this is not the check of :func:`compact`
    planned = plan(table, CompactRequest(partitions=specs), executor=executor, state=state)
    return run_compaction(table, planned, executor, progress=progress)


def _find_written_partitions(state: TableState, snapshot_id: int) -> list[PartitionSpec] | None:
    schema, fields = state.schema, state.schema.partition_fields
    if not fields:
        return None
    entries = state.manifests.read_delta_entries(state.snapshots.get(snapshot_id))
    return [
        format_partition_values(schema.decode_partition(partition), fields, schema.typed_options)
        for partition in dict.fromkeys(entry.partition for entry in entries)
    ]


DECLARATION = declare_step(
    COMPACT,
    CompactRequest,
    plan=plan_existing_partitions,
    run=run_compaction,
    help="In tables with deletion vectors, outdated rows are marked as deleted, and their files are "
    "not rewritten. Rows in postpone buckets are moved to real buckets first. With --simulate, "
    "compacts a sample of at most 256 MB in a temporary directory of this machine, and prints what "
    "a scan of it reads before and after.",
    examples=[
        "/lake db.orders --dry-run",
        "/lake db.orders --strategy full --simulate",
        "/lake db.orders --partitions dt=2026-01-01",
        "/lake db.events --order-by id --order-strategy zorder",
    ],
)
