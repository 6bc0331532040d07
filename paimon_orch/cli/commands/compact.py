"""Commands that rewrite data files or manifests: compact, rescale and others."""

import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from paimon_orch.cli.arguments import (
    AsJson,
    CatalogLocation,
    DryRun,
    ExecutorOption,
    Identifier,
    Master,
    PartitionFilter,
    Partitions,
    Yes,
)
from paimon_orch.cli.common import (
    add_progress_bar,
    build_executor,
    confirm,
    describe_loss,
    open_catalog,
    open_progress_bars,
    open_table,
    parse_names,
    parse_optional_duration,
    parse_partitions,
    print_result,
    print_values,
    split_partitions,
    start_spark,
)
from paimon_orch.cli.help_page import Panel
from paimon_orch.cli.registration import declare_option, register_command
from paimon_orch.cli.screen import print_json, print_lines
from paimon_orch.cli.table_layout import format_size, print_rows
from paimon_orch.errors import CancelledError, InputError, describe_error
from paimon_orch.format.display import format_count
from paimon_orch.safe_text import escape_name
from paimon_orch.steps.common.bucket_scan import (
    PARTITION_JUDGE,
    check_partitions_exist,
    scan_latest_buckets,
)
from paimon_orch.steps.common.executor_choice import ExecutorKind
from paimon_orch.steps.common.partition_selection import PartitionRequest
from paimon_orch.steps.common.step import EmptyRequest, run_step
from paimon_orch.steps.compaction import compact as compact_step
from paimon_orch.steps.compaction.bucket_selection import parse_buckets
from paimon_orch.steps.compaction.plan import CompactRequest
from paimon_orch.table.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from paimon_orch.steps.common.executor import Executor, Progress
    from paimon_orch.steps.compaction.policy import CompactionDecision
    from paimon_orch.steps.compaction.sort_compact import SortOrder

_MAX_SHOWN_UNITS = 1_000
_MAX_SHOWN_DECISIONS = 20  # maximum number of decisions that a dry run shows, one per partition
_NOTHING_TO_DO = "nothing to compact"
_EXAMPLES = [
    "compact /lake db.orders --dry-run",
    "compact /lake db.orders --partitions dt=2026-01-01",
    "compact /lake db.events --order-by id --order-strategy zorder",
]


class CompactStrategy(StrEnum):
    """The strategies of a compaction."""

    MINOR = "minor"
    FULL = "full"


class OrderStrategy(StrEnum):
    """The orders in which to sort append tables."""

    ORDER = "order"
    ZORDER = "zorder"
    HILBERT = "hilbert"


_Strategy = Annotated[
    CompactStrategy | None,
    declare_option(CompactRequest, "strategy", show_default=CompactStrategy.MINOR),
]
_OrderBy = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN,...", help="Sort an append table by these columns, separated by commas."
    ),
]
_OrderStrategy = Annotated[
    OrderStrategy | None,
    typer.Option(
        help="With --order-by: sort by the columns in order, or along a space-filling curve.",
        show_default=OrderStrategy.ORDER,
    ),
]
_Buckets = Annotated[
    str | None,
    declare_option(CompactRequest, "buckets", metavar="0,2-4", show_default="all buckets"),
]
_IdleFor = Annotated[
    str | None,
    declare_option(CompactRequest, "idle_for", "--partition-idle-for", metavar="DURATION"),
]
_IncludingDatabases = Annotated[
    str | None,
    typer.Option(metavar="REGEX", help="Databases to compact.", show_default="all"),
]
_IncludingTables = Annotated[
    str | None,
    typer.Option(metavar="REGEX", help="Tables to compact: 'db\\.orders_.*'.", show_default="all"),
]
_ExcludingTables = Annotated[
    str | None,
    typer.Option(metavar="REGEX", help="Tables to leave out.", show_default="none"),
]
_ClusterIdleFor = Annotated[
    str | None, declare_option(CompactRequest, "cluster_idle_for", metavar="DURATION")
]
_BucketNumber = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=1, help="Buckets of each partition.", show_default="the table's option"
    ),
]


def add_commands(app: typer.Typer) -> None:
    """Register the commands of this module."""
    register_command(app, compact, Panel.COMPACT, examples=_EXAMPLES)
    register_command(
        app,
        compact_database,
        Panel.COMPACT,
        examples=["compact-database /lake --including-databases 'sales.*' --dry-run"],
    )
    register_command(
        app, rescale, Panel.COMPACT, examples=["rescale /lake db.orders --bucket-num 8 --dry-run"]
    )
    register_command(
        app,
        materialize_deletion_vectors,
        Panel.COMPACT,
        examples=["materialize-deletion-vectors /lake db.events --dry-run"],
    )
    register_command(
        app,
        reassign_row_ids,
        Panel.COMPACT,
        examples=["reassign-row-ids /lake db.events --dry-run"],
    )
    register_command(
        app,
        compact_manifests,
        Panel.COMPACT,
        examples=["compact-manifests /lake db.orders --dry-run"],
    )


def compact(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    partitions: Partitions = None,
    where: PartitionFilter = None,
    buckets: _Buckets = None,
    partition_idle_for: _IdleFor = None,
    strategy: _Strategy = None,
    order_by: _OrderBy = None,
    order_strategy: _OrderStrategy = None,
    cluster_idle_for: _ClusterIdleFor = None,
    dry_run: DryRun = False,
    executor: ExecutorOption = ExecutorKind.AUTO,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Merge sorted runs, or merge small files.

    In tables with deletion vectors, outdated rows are marked as deleted, and their files are not
    rewritten. Rows in postpone buckets are moved to real buckets first.
    """
    runner = build_executor(executor, master)
    target = open_table(ctx, location, table)
    order = _parse_order(order_by, order_strategy, strategy)
    strategy = strategy or CompactStrategy.MINOR
    if order is not None and cluster_idle_for is not None:
        raise InputError("--cluster-idle-for and --order-by cannot be combined")
    if order is not None and executor is ExecutorKind.LOCAL:
        raise InputError("--order-by sorts on Spark; it cannot be used with --executor local")
    if order is not None and (buckets is not None or partition_idle_for is not None):
        raise InputError(
            "--order-by cannot be combined with --buckets or --partition-idle-for; select "
            "partitions by --partitions or --where"
        )
    if order is None:
        specs = split_partitions(target, partitions)
        request = CompactRequest(
            partitions=specs,
            where=where,
            strategy=strategy.value,
            buckets=None if buckets is None else parse_buckets(buckets),
            idle_for=parse_optional_duration("--partition-idle-for", partition_idle_for),
            cluster_idle_for=parse_optional_duration("--cluster-idle-for", cluster_idle_for),
        )
        planned, decisions = _plan_compaction(target, request, runner, with_decisions=dry_run)
    else:
        planned, decisions = _plan_sort(target, partitions, where, order), []
    if dry_run:
        _print_plan(planned, decisions, as_json)
        return
    builds_indexes = order is None and compact_step.builds_key_indexes(planned.state.schema)
    if not planned and not planned.postponed and not builds_indexes:
        empty_result = compact_step.CompactionResult(plan=planned)
        print_result(empty_result.to_dict(), as_json, _NOTHING_TO_DO)
        return
    with open_progress_bars() as bars:
        progress = add_progress_bar(bars, f"compact {table}")
        if order is None:
            result = compact_step.run_compaction(target, planned, runner, progress=progress)
        else:
            result = _run_sort(target, planned, start_spark(master), progress)
    only_moved = "rows in postpone buckets were moved; nothing to compact"
    print_result(result.to_dict(), as_json, only_moved if planned.postponed else _NOTHING_TO_DO)


def compact_database(
    ctx: typer.Context,
    location: CatalogLocation,
    including_databases: _IncludingDatabases = None,
    including_tables: _IncludingTables = None,
    excluding_tables: _ExcludingTables = None,
    partition_idle_for: _IdleFor = None,
    strategy: _Strategy = None,
    dry_run: DryRun = False,
    executor: ExecutorOption = ExecutorKind.AUTO,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Compact the tables of one or more databases.

    A regular expression must match a whole name: that of a database, or DATABASE.TABLE. After a
    failure, the other tables are compacted, and the exit status is 1.
    """
    runner = build_executor(executor, master)
    catalog = open_catalog(ctx, location)
    names = catalog.find_tables(
        including_databases=including_databases,
        including_tables=including_tables,
        excluding_tables=excluding_tables,
    )
    if not names:
        catalog.require_exists()
    request = CompactRequest(
        strategy=(strategy or CompactStrategy.MINOR).value,
        idle_for=parse_optional_duration("--partition-idle-for", partition_idle_for),
    )
    reports: dict[str, dict[str, object]] = {}
    for name in names:
        with open_progress_bars() as bars:
            try:
                planned = compact_step.plan(catalog.table(name), request, executor=runner)
                if dry_run or not (planned or planned.postponed):
                    reports[name] = planned.to_dict()
                else:
                    progress = add_progress_bar(bars, f"compact {name}")
                    reports[name] = compact_step.run_compaction(
                        catalog.table(name), planned, runner, progress=progress
                    ).to_dict()
            except CancelledError:
                raise
            except Exception as error:  # noqa: BLE001 - the other tables are compacted
                reports[name] = {"error": describe_error(error)}
        if not as_json:
            print_lines(_format_report(name, reports[name], dry_run=dry_run))
    failed = sum("error" in report for report in reports.values())
    text = f"{format_count(len(names), 'table')}, {failed} failed"
    text += "; nothing was changed" if dry_run else ""
    print_values({"tables": reports}, as_json, text)
    if failed:
        sys.exit(1)


def _format_report(name: str, report: Mapping[str, object], *, dry_run: bool) -> str:
    if "error" in report:
        return f"{escape_name(name)}: failed: {report['error']}"
    if not dry_run and report["snapshot_id"] is not None and "files_before" in report:
        return (
            f"{name}: snapshot {report['snapshot_id']}, {report['files_before']} files to "
            f"{report['files_after']}"
        )
    if dry_run and report["files"]:
        files, buckets = (
            format_count(report["files"], "file"),
            format_count(report["buckets"], "bucket"),
        )
        return f"{name}: would compact {files} of {buckets}"
    return f"{name}: {_NOTHING_TO_DO}"


def _plan_compaction(
    table: Table,
    request: CompactRequest,
    executor: "Executor",
    *,
    with_decisions: bool,
) -> tuple[compact_step.CompactionPlan, list["CompactionDecision"]]:
    """Return the plan and, if they are needed, the decisions; reads the manifests once."""
    state = table.load()
    scan = scan_latest_buckets(state, request, executor)
    if scan is not None:
        judges = [compact_step.build_judge(scan, request)]
        if request.partitions is not None and request.where is None:
            judges.append(PARTITION_JUDGE)
        if with_decisions:
            from paimon_orch.steps.compaction.policy import PolicyJudge

            judges.append(PolicyJudge(now=scan.now))
        scan.judge_together(judges)
    if request.partitions is not None:
        all_buckets = scan  # but a filter excludes partitions that exist
        if request.where is not None:
            selection = PartitionRequest(partitions=request.partitions)
            all_buckets = scan_latest_buckets(state, selection, executor)
        check_partitions_exist(state, request.partitions, all_buckets)
    planned = compact_step.plan(table, request, scan, state=state)
    if scan is None or not with_decisions:
        return planned, []
    from paimon_orch.steps.compaction.policy import decide

    return planned, decide(table, scan=scan)


def _plan_sort(
    table: Table, partitions: str | None, where: str | None, order: "SortOrder"
) -> compact_step.CompactionPlan:
    from paimon_orch.steps.compaction import sort_compact

    specs = parse_partitions(table, partitions)
    return sort_compact.plan(
        table, sort_compact.SortRequest(partitions=specs, where=where, order=order)
    )


def _parse_order(
    columns: str | None, curve: OrderStrategy | None, strategy: CompactStrategy | None
) -> "SortOrder | None":
    """Return the sort order, if any; raises :class:`InputError` for contradicting options."""
    if columns is None:
        if curve is not None:
            raise InputError(
                f"--order-strategy {curve} requires --order-by with the columns to sort by"
            )
        return None
    names = parse_names(columns)
    if not names:
        raise InputError("--order-by is empty; write for example --order-by dt,id")
    if strategy is CompactStrategy.MINOR:
        raise InputError(
            "--strategy minor and --order-by cannot be combined: sorting rewrites all files"
        )
    from paimon_orch.steps.compaction.sort_compact import SortOrder

    return SortOrder(tuple(names), (curve or OrderStrategy.ORDER).value)


def _run_sort(
    table: Table,
    plan: compact_step.CompactionPlan,
    session: "SparkSession",
    progress: "Progress",
) -> compact_step.CompactionResult:
    from paimon_orch.spark.sort_compact import run_sort

    return run_sort(session, table, plan, progress=progress)


def _print_plan(
    plan: compact_step.CompactionPlan, decisions: list["CompactionDecision"], as_json: bool
) -> None:
    values = plan.to_dict()
    if as_json:
        values["decisions"] = [decision.to_dict() for decision in decisions]
        print_json(values)
        return
    if plan:
        _print_units(plan)
        buckets = format_count(values["buckets"], "bucket")
        print_lines(f"{buckets}, {format_count(values['files'], 'file')}; nothing was changed")
    else:
        print_lines(_NOTHING_TO_DO)
    _print_decisions(decisions)


def _print_units(plan: compact_step.CompactionPlan) -> None:
    rows = [
        (
            unit.partition_text,
            str(unit.bucket),
            unit.reason_details or unit.reason,
            str(unit.files),
            f"{unit.rows:,}",
            format_size(unit.bytes),
            str(unit.output_level),
        )
        for unit in plan.units[:_MAX_SHOWN_UNITS]
    ]
    print_rows(("partition", "bucket", "why", "files", "rows", "size", "to level"), rows)
    if len(plan.units) > _MAX_SHOWN_UNITS:
        more = format_count(len(plan.units) - _MAX_SHOWN_UNITS, "smaller unit")
        print_lines(f"and {more}; --json shows all")


def _print_decisions(decisions: Sequence["CompactionDecision"]) -> None:
    if decisions:
        print_lines("Decisions of the Dagster sensor's default policy:")
    for decision in decisions[:_MAX_SHOWN_DECISIONS]:
        print_lines(f"  {decision}")
    if len(decisions) > _MAX_SHOWN_DECISIONS:
        print_lines(
            f"  and {format_count(len(decisions) - _MAX_SHOWN_DECISIONS, 'more partition')}"
        )


def rescale(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    bucket_num: _BucketNumber = None,
    partitions: Partitions = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    executor: ExecutorOption = ExecutorKind.AUTO,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Change the number of buckets.

    Rewrites the partitions. Also change the table's option 'bucket', which writers use.
    """
    from paimon_orch.steps.maintenance import rescale as rescale_step

    runner = build_executor(executor, master)
    target = open_table(ctx, location, table)
    specs = parse_partitions(target, partitions)
    planned = rescale_step.plan(
        target, rescale_step.RescaleRequest(bucket_num=bucket_num, partitions=specs)
    )
    snapshot = None
    rows = describe_loss(
        {
            "row": sum(split.row_count for split in planned.splits),
            "partition": [name for name in planned.partitions if name],
        }
    )
    action = f"rewrite {rows} of {table} to {format_count(planned.buckets, 'bucket')}"
    if planned and not dry_run:
        confirm(action, yes=yes, undo="No other job may write to these rows.")
        snapshot = run_step(rescale_step.RESCALE, target, planned, runner).snapshot
    committed = None if snapshot is None else snapshot.id
    partitions = format_count(len(planned.partitions), "partition")
    text = f"{partitions} to {format_count(planned.buckets, 'bucket')}; "
    text += "nothing was changed" if snapshot is None else f"snapshot {snapshot.id}"
    if planned and dry_run:
        text = f"would {action}; nothing was changed"
    print_values(planned.to_dict() | {"committed": committed}, as_json, text)


def materialize_deletion_vectors(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    partitions: Partitions = None,
    where: PartitionFilter = None,
    dry_run: DryRun = False,
    executor: ExecutorOption = ExecutorKind.AUTO,
    master: Master = None,
    as_json: AsJson = False,
) -> None:
    """Remove the deleted rows of a table with data evolution.

    Compactions of these tables keep deleted rows, because row ids must not change. The other rows
    of the rewritten files get new row ids, and global indexes of their partitions are dropped.
    """
    from paimon_orch.steps.compaction import materialize as materialize_step

    runner = build_executor(executor, master)
    target = open_table(ctx, location, table)
    specs = parse_partitions(target, partitions)
    planned = materialize_step.plan(target, PartitionRequest(partitions=specs, where=where))
    if dry_run:
        _print_plan(planned, [], as_json)
        return
    with open_progress_bars() as bars:
        progress = add_progress_bar(bars, f"materialize deletion vectors of {table}")
        step = materialize_step.MATERIALIZE_DELETION_VECTORS
        result = run_step(step, target, planned, runner, progress=progress)
    print_result(result.to_dict(), as_json, "no rows are deleted: nothing to do")


def reassign_row_ids(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    partitions: Partitions = None,
    where: PartitionFilter = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Give the rows of each partition consecutive row ids, in a table with data evolution.

    Compactions join only files of consecutive ids, and writers of several partitions leave gaps.
    Rewrites only metadata.
    """
    from paimon_orch.steps.maintenance import reassign_row_ids as reassign_step

    target = open_table(ctx, location, table)
    specs = parse_partitions(target, partitions)
    planned = reassign_step.plan(target, PartitionRequest(partitions=specs, where=where))
    snapshot_id = None
    if not dry_run:
        snapshot_id = run_step(reassign_step.REASSIGN_ROW_IDS, target, planned).snapshot_id
    values = planned.to_dict()
    outcome = "nothing was changed" if snapshot_id is None else f"snapshot {snapshot_id}"
    partitions = format_count(values["partitions"], "partition")
    text = f"{format_count(values['rows'], 'row')} of {partitions}; {outcome}"
    print_values(values | {"snapshot_id": snapshot_id}, as_json, text)


def compact_manifests(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Merge small manifests of the newest snapshot."""
    from paimon_orch.steps.maintenance import compact_manifests as manifest_step

    target = open_table(ctx, location, table)
    planned = manifest_step.plan(target, EmptyRequest())
    snapshot = (
        None if dry_run else run_step(manifest_step.COMPACT_MANIFESTS, target, planned).snapshot
    )
    values = planned.to_dict() | {"snapshot_id": None if snapshot is None else snapshot.id}
    outcome = "nothing was changed" if snapshot is None else f"merged in snapshot {snapshot.id}"
    text = (
        f"{format_count(planned.manifests, 'manifest')}, {planned.small} of them small, with "
        f"{planned.deleted_entries} deleted entries; {outcome}"
    )
    print_values(values, as_json, text)
