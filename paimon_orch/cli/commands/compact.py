"""The commands ``compact`` and ``compact-database``."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

import typer

from paimon_orch.cli.arguments import PartitionFilter, Partitions, Simulate
from paimon_orch.cli.calls import CatalogCall, ExecutorOptions, TableCall
from paimon_orch.cli.common import (
    add_progress_bar,
    open_progress_bars,
    parse_names,
    parse_partitions,
    start_spark,
)
from paimon_orch.cli.registration import declared_option, option, register_command
from paimon_orch.cli.screen import Output, print_lines
from paimon_orch.cli.step_command import print_plan
from paimon_orch.errors import CancelledError, InputError, describe_error
from paimon_orch.format.display import format_count, format_size
from paimon_orch.safe_text import escape_name
from paimon_orch.steps.common.bucket_scan import PARTITION_JUDGE, scan_latest_buckets
from paimon_orch.steps.common.executor_choice import ExecutorKind
from paimon_orch.steps.common.partition_request import (
    PartitionRequest,
    check_partitions_exist,
    split_partitions,
)
from paimon_orch.steps.compaction import compact as compact_step
from paimon_orch.steps.compaction.bucket_selection import parse_buckets
from paimon_orch.steps.compaction.plan import CompactRequest
from paimon_orch.steps.compaction.policy import CompactionStrategy
from paimon_orch.table.expired_reads import repeat_if_expired
from paimon_orch.table.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from paimon_orch.steps.common.executor import Executor, Progress
    from paimon_orch.steps.compaction.policy import CompactionDecision
    from paimon_orch.steps.compaction.sort_compact import SortOrder

_MAX_SHOWN_DECISIONS = 20  # maximum number of decisions that a dry run shows, one per partition
_NOTHING_TO_DO = "nothing to compact"
_EXAMPLES = [
    "compact /lake db.orders --dry-run",
    "compact /lake db.orders --strategy full --simulate",
    "compact /lake db.orders --partitions dt=2026-01-01",
    "compact /lake db.events --order-by id --order-strategy zorder",
]


class OrderStrategy(StrEnum):
    """The orders in which to sort append tables."""

    ORDER = "order"
    ZORDER = "zorder"
    HILBERT = "hilbert"


def add_commands(app: typer.Typer) -> None:
    """Register the commands of this module."""
    register_command(app, compact, examples=_EXAMPLES)
    register_command(
        app,
        compact_database,
        examples=["compact-database /lake --including-databases 'sales.*' --dry-run"],
    )


@dataclass(frozen=True, kw_only=True)
class CompactCall(ExecutorOptions, TableCall):
    """A call of ``compact``."""

    partitions: Partitions = None
    where: PartitionFilter = None
    buckets: str | None = declared_option(CompactRequest, "buckets")
    partition_idle_for: timedelta | None = declared_option(CompactRequest, "idle_for")
    strategy: CompactionStrategy | None = declared_option(CompactRequest, "strategy")
    order_by: str | None = option(
        "Sort an append table by these columns, separated by commas.", metavar="COLUMN,..."
    )
    order_strategy: OrderStrategy | None = option(
        "With --order-by: sort by the columns in order, or along a space-filling curve.",
        show_default=OrderStrategy.ORDER,
    )
    cluster_idle_for: timedelta | None = declared_option(CompactRequest, "cluster_idle_for")
    simulate: Simulate = False


def compact(call: CompactCall) -> None:
    """Merge sorted runs, or merge small files.

    In tables with deletion vectors, outdated rows are marked as deleted, and their files are not
    rewritten. Rows in postpone buckets are moved to real buckets first. With --simulate, compacts a
    sample of at most 256 MB in a temporary directory of this machine, and prints what a scan of it
    reads before and after.
    """
    runner = call.build_executor()
    target = call.open_table()
    alone = {
        "--cluster-idle-for": call.cluster_idle_for,
        "--buckets": call.buckets,
        "--partition-idle-for": call.partition_idle_for,
        "--simulate": call.simulate or None,
    }
    order = _parse_order(call.order_by, call.order_strategy, call.strategy, call.executor, alone)
    if order is None:
        specs = None if call.partitions is None else split_partitions(target, call.partitions)
        request = CompactRequest(
            partitions=specs,
            where=call.where,
            strategy=call.strategy or "minor",
            buckets=None if call.buckets is None else parse_buckets(call.buckets),
            idle_for=call.partition_idle_for,
            cluster_idle_for=call.cluster_idle_for,
        )
        if call.simulate:
            _print_simulation(target, request, call.dry_run, call.output)
            return
        planned, decisions = _plan_compaction(target, request, runner, with_decisions=call.dry_run)
    else:
        planned, decisions = _plan_sort(target, call.partitions, call.where, order), []
    if call.dry_run:
        values = planned.to_dict() | {"decisions": [each.to_dict() for each in decisions]}
        call.output.print_report(values, partial(_print_plan, planned, decisions, target))
        return
    builds_indexes = order is None and compact_step.builds_key_indexes(planned.state.schema)
    if not planned and not planned.postponed and not builds_indexes:
        empty = compact_step.CompactionResult(plan=planned).to_dict()
        call.output.print_report(empty, lambda: print_lines(_explain_nothing(target, planned)))
        return
    run = partial(compact_step.run_compaction, executor=runner)
    if order is not None:
        run = partial(_run_sort, session=start_spark(call.master))
    with open_progress_bars() as bars:
        result = run(target, planned, progress=add_progress_bar(bars, f"compact {call.table}"))
    only_moved = "rows in postpone buckets were moved; nothing to compact"
    call.output.print_result(result.to_dict(), only_moved if planned.postponed else _NOTHING_TO_DO)


@dataclass(frozen=True, kw_only=True)
class CompactDatabaseCall(ExecutorOptions, CatalogCall):
    """A call of ``compact-database``."""

    including_databases: str | None = option(
        "Databases to compact.", metavar="REGEX", show_default="all"
    )
    including_tables: str | None = option(
        "Tables to compact: 'db\\.orders_.*'.", metavar="REGEX", show_default="all"
    )
    excluding_tables: str | None = option(
        "Tables to leave out.", metavar="REGEX", show_default="none"
    )
    partition_idle_for: timedelta | None = declared_option(CompactRequest, "idle_for")
    strategy: CompactionStrategy | None = declared_option(CompactRequest, "strategy")


def compact_database(call: CompactDatabaseCall) -> None:
    """Compact the tables of one or more databases.

    A regular expression must match a whole name: that of a database, or DATABASE.TABLE. After a
    failure, the other tables are compacted, and the exit status is 1.
    """
    runner = call.build_executor()
    catalog = call.open_catalog()
    names = catalog.find_tables(
        including_databases=call.including_databases,
        including_tables=call.including_tables,
        excluding_tables=call.excluding_tables,
    )
    if not names:
        catalog.require_exists()
    request = CompactRequest(
        strategy=call.strategy or "minor",
        idle_for=call.partition_idle_for,
    )
    reports: dict[str, dict[str, object]] = {}
    for name in names:
        with open_progress_bars() as bars:
            try:
                planned = compact_step.plan(catalog.table(name), request, executor=runner)
                if call.dry_run or not (planned or planned.postponed):
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
        if not call.output.is_json:
            print_lines(_format_report(name, reports[name], dry_run=call.dry_run))
    failed = sum("error" in report for report in reports.values())
    text = f"{format_count(len(names), 'table')}, {failed} failed"
    text += "; nothing was changed" if call.dry_run else ""
    call.output.print_values({"tables": reports}, text)
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


@repeat_if_expired
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
            from paimon_orch.steps.compaction.decide import PolicyJudge

            judges.append(PolicyJudge(now=scan.now))
        scan.judge_together(judges)
    if request.partitions is not None:
        all_buckets = scan  # but a filter excludes partitions that exist
        if request.where is not None:
            selection = PartitionRequest(partitions=request.partitions)
            all_buckets = scan_latest_buckets(state, selection, executor)
        check_partitions_exist(state, request.partitions, all_buckets)
    planned = compact_step.plan(table, request, scan=scan, state=state)
    if scan is None or not with_decisions:
        return planned, []
    from paimon_orch.steps.compaction.decide import decide

    return planned, decide(table, scan=scan)


def _plan_sort(
    table: Table, partitions: str | None, where: str | None, order: "SortOrder"
) -> compact_step.CompactionPlan:
    from paimon_orch.steps.compaction import sort_compact

    specs = parse_partitions(table, partitions)
    return sort_compact.plan(
        table, sort_compact.SortRequest(partitions=specs, where=where, order=order)
    )


def _print_simulation(table: Table, request: CompactRequest, dry_run: bool, output: Output) -> None:
    from paimon_orch.steps.compaction.simulate import simulate

    if dry_run:
        raise InputError("--simulate and --dry-run cannot be combined")
    simulation = simulate(table, request)
    if simulation is None:
        planned = compact_step.plan(table, request)
        output.print_values({"sampled_buckets": 0}, _explain_nothing(table, planned))
    else:
        output.print_values(simulation.to_dict(), simulation.describe())


def _parse_order(
    columns: str | None,
    curve: OrderStrategy | None,
    strategy: CompactionStrategy | None,
    executor: ExecutorKind,
    others: Mapping[str, object | None],
) -> "SortOrder | None":
    """Return the sort order, if any; raises :class:`InputError` for contradicting options.

    ``others`` are options that cannot be combined with an order.
    """
    if columns is None:
        if curve is not None:
            raise InputError(
                f"--order-strategy {curve} requires --order-by with the columns to sort by"
            )
        return None
    if executor is ExecutorKind.LOCAL:
        raise InputError("--order-by sorts on Spark; it cannot be used with --executor local")
    given = [option for option, value in others.items() if value is not None]
    if given:
        raise InputError(
            f"--order-by cannot be combined with {', '.join(given)}; it sorts whole partitions, "
            "which are selected by --partitions or --where"
        )
    names = parse_names(columns)
    if not names:
        raise InputError("--order-by is empty; write for example --order-by dt,id")
    if strategy == "minor":
        raise InputError(
            "--strategy minor and --order-by cannot be combined: sorting rewrites all files"
        )
    from paimon_orch.steps.compaction.sort_compact import SortOrder

    return SortOrder(tuple(names), (curve or OrderStrategy.ORDER).value)


def _run_sort(
    table: Table,
    plan: compact_step.CompactionPlan,
    *,
    session: "SparkSession",
    progress: "Progress | None" = None,
) -> compact_step.CompactionResult:
    from paimon_orch.spark.sort_compact import run_sort

    return run_sort(session, table, plan, progress=progress)


def _print_plan(
    plan: compact_step.CompactionPlan, decisions: list["CompactionDecision"], table: Table
) -> None:
    if plan:
        print_plan(plan, plan.describe(), table.identifier)
    else:
        print_lines(_explain_nothing(table, plan))
    _print_decisions(decisions)


def _explain_nothing(table: Table, planned: compact_step.CompactionPlan) -> str:
    """Say why there is nothing to compact, and what a full compaction would save readers."""
    request = planned.request
    if not isinstance(request, CompactRequest) or request.strategy == "full":
        return _NOTHING_TO_DO
    from paimon_orch.steps.inspection.verdict.verdict import open_judge

    judge = open_judge(table, state=planned.state)
    full = judge.predict_compaction(replace(request, strategy="full"))
    if full is None:
        return _NOTHING_TO_DO
    files, size = format_count(full.rewrite_files, "file"), format_size(full.rewrite_bytes)
    effect = "a scan would need as many requests"
    if judge.helps(full):
        effect = f"a scan needs {full.describe_saving(judge.now) or 'fewer deleted rows'}"
    return (
        f"{_NOTHING_TO_DO} by the table's options; with --strategy full, {files} of {size} would be "
        f"rewritten, and {effect}"
    )


def _print_decisions(decisions: Sequence["CompactionDecision"]) -> None:
    if decisions:
        print_lines("Decisions of the Dagster sensor's default policy:")
    for decision in decisions[:_MAX_SHOWN_DECISIONS]:
        print_lines(f"  {decision}")
    if len(decisions) > _MAX_SHOWN_DECISIONS:
        print_lines(
            f"  and {format_count(len(decisions) - _MAX_SHOWN_DECISIONS, 'more partition')}"
        )
