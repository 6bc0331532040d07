"""Commands that maintain all tables of a catalog, and that show what was done."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Annotated

import pyarrow as pa
import typer

from paimon_orch.cli.arguments import CatalogLocation, JsonOutput, TablePattern
from paimon_orch.cli.calls import CatalogCall, ExecutorOptions
from paimon_orch.cli.common import (
    add_progress_bar,
    open_catalog,
    open_progress_bars,
    parse_pair,
    require_match,
)
from paimon_orch.cli.help_page import new_app
from paimon_orch.cli.output import to_json_value
from paimon_orch.cli.registration import cli_command, declared_option, option
from paimon_orch.cli.screen import LINES, print_lines
from paimon_orch.errors import InputError
from paimon_orch.format.display import format_count, format_size
from paimon_orch.format.times import parse_cutoff
from paimon_orch.steps.autopilot.action_outcome import ActionOutcome, MaintenancePrices, OutcomeKind
from paimon_orch.steps.autopilot.budgets import MaintenanceBudgets
from paimon_orch.steps.autopilot.decisions import DecisionState, MaintenanceDecision
from paimon_orch.steps.autopilot.maintenance_history import read_maintenance_history
from paimon_orch.steps.autopilot.maintenance_plan import MaintenancePlan, plan_maintenance
from paimon_orch.steps.autopilot.maintenance_request import HISTORY_TABLE, MaintenanceRequest
from paimon_orch.steps.autopilot.run_maintenance import MaintenanceResult, run_maintenance
from paimon_orch.steps.common.argument import list_arguments
from paimon_orch.steps.common.machine import count_cores

app = new_app()

_MAX_SHOWN_SKIPS = 20

_HistoryTable = Annotated[
    str, typer.Option(metavar="DATABASE.TABLE", help="Table of executed and skipped actions.")
]
_Since = Annotated[
    int | None,
    typer.Option(
        metavar="TIME",
        parser=lambda text: parse_cutoff("--since", text),
        help="Actions since this time: an age such as '7 d', ISO 8601 or epoch milliseconds.",
        show_default="all",
    ),
]
_Table = Annotated[
    str | None,
    typer.Option("--table", metavar="DATABASE.TABLE", help="Actions on this table only."),
]
_Skipped = Annotated[bool, typer.Option("--skipped", help="Print skipped and refused actions too.")]


@dataclass(frozen=True, kw_only=True)
class AutopilotCall(ExecutorOptions, CatalogCall):
    """A call of ``autopilot``."""

    pattern: TablePattern = "*"
    exclude: list[str] | None = option(
        "Leave out these tables; may be repeated.", metavar="PATTERN"
    )
    max_bytes: str | None = declared_option(MaintenanceBudgets, "max_bytes")
    max_bytes_per_hour: str | None = declared_option(MaintenanceBudgets, "max_bytes_per_hour")
    hours: str | None = declared_option(MaintenanceBudgets, "hours")
    max_concurrent: int = declared_option(MaintenanceBudgets, "max_concurrent")
    min_score: float = declared_option(MaintenanceBudgets, "min_score")
    idle_for: str = declared_option(MaintenanceRequest, "idle_for")
    visible_within: str = declared_option(MaintenanceRequest, "visible_within")
    expiring_within: str = declared_option(MaintenanceRequest, "expiring_within")
    reads: list[str] | None = option(
        "Tables that are read N times as often; may be repeated.", metavar="PATTERN=N"
    )
    history_table: _HistoryTable = HISTORY_TABLE
    price_per_gb: float = declared_option(MaintenancePrices, "per_gb")
    price_per_core_hour: float = declared_option(MaintenancePrices, "per_core_hour")


@cli_command(
    app,
    "autopilot /lake --dry-run",
    "autopilot /lake 'sales.*' --max-bytes '50 gb' --hours 22-6",
    has_allowances=True,
)
def autopilot(call: AutopilotCall) -> None:
    """Maintain all tables of a catalog, as far as it pays.

    Ranks compactions, clustering, manifest compactions and file indexes by what a read saves for a
    rewritten byte, and executes the best ones within the budgets; also expires snapshots. Records
    each action and each skip in the history table. The exit status is 1 if an action fails.
    """
    request = MaintenanceRequest(
        include=(call.pattern,),
        exclude=tuple(call.exclude or ()),
        budgets=MaintenanceBudgets(
            **{name: getattr(call, name) for name in list_arguments(MaintenanceBudgets)}
        ),
        idle_for=call.idle_for,
        visible_within=call.visible_within,
        expiring_within=call.expiring_within,
        reads=dict(map(_parse_reads, call.reads or ())),
        history_table=call.history_table,
    )
    runner = call.build_executor()
    catalog = call.open_catalog()
    with open_progress_bars() as bars:
        progress = add_progress_bar(bars, "examine tables")
        planned = plan_maintenance(catalog, request, runner, advance=progress)
    require_match(catalog, call.location, call.pattern, planned.tables)
    if call.dry_run:
        call.output.print_report(planned.to_dict(), partial(_print_plan, planned))
        return
    result = run_maintenance(
        catalog,
        planned,
        runner,
        prices=MaintenancePrices(
            per_gb=call.price_per_gb,
            per_core_hour=call.price_per_core_hour,
            cores=count_cores(),
        ),
        report=_print_nothing if call.output.is_json else _print_outcome,
    )
    call.output.print_report(result.to_dict(), partial(_print_result, result))
    if result.count(OutcomeKind.FAILED):
        sys.exit(1)


@cli_command(
    app,
    "maintenance-history /lake --since '7 d'",
    "maintenance-history /lake --table sales.orders --skipped",
)
def maintenance_history(
    ctx: typer.Context,
    location: CatalogLocation,
    since: _Since = None,
    table: _Table = None,
    skipped: _Skipped = False,
    history_table: _HistoryTable = HISTORY_TABLE,
    output: JsonOutput = LINES,
) -> None:
    """Print the actions that autopilot has executed.

    The oldest action is the first. The history is a table, which read and every engine can query.
    """
    time = None if since is None else datetime.fromtimestamp(since / 1000, UTC)
    catalog = open_catalog(ctx, location)
    catalog.require_exists()
    rows = read_maintenance_history(
        catalog, history_table, since=time, table=table, include_skipped=skipped
    )
    values = [to_json_value(row) for row in rows.to_pylist()]
    output.print_report(values, partial(_print_history, rows))


def _parse_reads(text: str) -> tuple[str, float]:
    pattern, number = parse_pair(text, "'sales.*=20'")
    try:
        return pattern, float(number)
    except ValueError:
        raise InputError(f"--reads {text!r}: {number!r} is not a number") from None


def _print_plan(plan: MaintenancePlan) -> None:
    for action in plan.actions:
        _print_action(action)
    _print_skips(plan.skips)
    tables = format_count(len(plan.tables), "table")
    actions = format_count(len(plan.actions), "action")
    print_lines(
        f"{tables}: would execute {actions} and rewrite {format_size(plan.rewrite_bytes)}; "
        "nothing was changed"
    )


def _print_action(action: MaintenanceDecision) -> None:
    score = "due" if action.score == float("inf") else f"score {action.score:,.2f}"
    print_lines(f"{action} ({score}, {format_size(action.rewrite_bytes)} to rewrite)")


def _print_skips(skips: Sequence[MaintenanceDecision]) -> None:
    shown = [skip for skip in skips if skip.state is not DecisionState.NOTHING_TO_DO]
    for skip in shown[:_MAX_SHOWN_SKIPS]:
        print_lines(f"{skip.state}: {skip}")
    if len(shown) > _MAX_SHOWN_SKIPS:
        print_lines(f"and {len(shown) - _MAX_SHOWN_SKIPS:,} more; --json shows all")


def _print_nothing(_outcome: ActionOutcome) -> None:
    pass


def _print_outcome(outcome: ActionOutcome) -> None:
    effect = outcome.effect
    print_lines(
        f"{outcome} ({format_size(effect.bytes_read)} read, {format_size(effect.bytes_written)} "
        f"written, {outcome.seconds:,.1f} s)"
    )


def _print_result(result: MaintenanceResult) -> None:
    counts = ", ".join(f"{kind}: {result.count(kind)}" for kind in OutcomeKind)
    cost = f"; cost {result.cost:,.2f}" if result.cost else ""
    tables = format_count(len(result.plan.tables), "table")
    budgets = result.plan.request.budgets
    is_open = budgets.is_open(datetime.now().astimezone().hour)
    print_lines(
        f"{tables}; {counts}; {format_size(result.bytes_read)} read, "
        f"{format_size(result.bytes_written)} written{cost}"
        + ("" if is_open else f"; it is outside of the hours {budgets.hours}")
    )


def _print_history(rows: pa.Table) -> None:
    if not len(rows):
        print_lines("no actions")
    for row in rows.to_pylist():
        name = f"{row['table_name']} {row['partition']}".rstrip()
        error = "" if row["error"] is None else f": {row['error']}"
        cost = f", cost {row['cost']:,.4f}" if row["cost"] else ""
        print_lines(
            f"{row['started_at'].isoformat(sep=' ', timespec='seconds')} {name}: {row['action']}: "
            f"{row['outcome']}{error} ({format_size(row['bytes_read'])} read, {row['rows']:,} "
            f"rows, {row['seconds']:,.1f} s{cost}); {row['reason']}"
        )
