"""The commands ``compact`` and ``compact-database``."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

from paimon_orch.cli.calls import CatalogCall, ExecutorOptions
from paimon_orch.cli.common import add_progress_bar, open_progress_bars
from paimon_orch.cli.help_page import new_app
from paimon_orch.cli.registration import cli_command, declared_option, option
from paimon_orch.cli.screen import Output, print_lines
from paimon_orch.cli.step_command import CommandDetails, add_step_command
from paimon_orch.errors import CancelledError, describe_error
from paimon_orch.format.display import format_count, format_size
from paimon_orch.safe_text import escape_name
from paimon_orch.steps.common.step_registry import find_steps
from paimon_orch.steps.compaction import compact
from paimon_orch.steps.compaction.plan import NOTHING_TO_COMPACT, CompactionPlan, CompactRequest
from paimon_orch.steps.compaction.policy import CompactionStrategy
from paimon_orch.table.table import Table

app = new_app()


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


@cli_command(
    app,
    "compact-database /lake --including-databases 'sales.*' --dry-run",
    has_allowances=True,
)
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
    request = CompactRequest(strategy=call.strategy, idle_for=call.partition_idle_for)
    reports: dict[str, dict[str, object]] = {}
    for name in names:
        with open_progress_bars() as bars:
            try:
                planned = compact.plan(catalog.table(name), request, executor=runner)
                if call.dry_run or not (planned or planned.postponed):
                    reports[name] = planned.to_dict()
                else:
                    progress = add_progress_bar(bars, f"compact {name}")
                    reports[name] = compact.run_compaction(
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
    parts = []
    if dry_run:
        postponed = report.get("postponed")
        if isinstance(postponed, Mapping):
            rows = format_count(postponed["rows"], "row")
            parts.append(f"would move {rows} from postpone buckets")
        if report["files"]:
            files = format_count(report["files"], "file")
            parts.append(f"would compact {files} of {format_count(report['buckets'], 'bucket')}")
    elif "files_before" in report:
        if report["moved_rows"]:
            rows = format_count(report["moved_rows"], "row")
            parts.append(f"moved {rows} from postpone buckets")
        if report["snapshot_id"] is not None:
            files = format_count(report["files_before"], "file")
            parts.append(f"snapshot {report['snapshot_id']}, {files} to {report['files_after']}")
    return f"{name}: {'; '.join(parts) or NOTHING_TO_COMPACT}"


def _simulate(table: Table, request: CompactRequest, output: Output) -> None:
    from paimon_orch.steps.compaction.simulate import simulate

    simulation = simulate(table, request)
    if simulation is None:
        planned = compact.plan(table, request)
        output.print_values({"sampled_buckets": 0}, _explain_nothing(table, planned))
    else:
        output.print_values(simulation.to_dict(), simulation.describe())


def _explain_nothing(table: Table, planned: CompactionPlan) -> str:
    """Say why there is nothing to compact, and what a full compaction would save readers."""
    request = planned.request
    if not isinstance(request, CompactRequest) or request.strategy == "full":
        return NOTHING_TO_COMPACT
    from paimon_orch.steps.inspection.verdict.verdict import open_judge

    judge = open_judge(table, state=planned.state)
    full = judge.predict_compaction(replace(request, strategy="full"))
    if full is None:
        return NOTHING_TO_COMPACT
    files, size = format_count(full.rewrite_files, "file"), format_size(full.rewrite_bytes)
    effect = "a scan would need as many requests"
    if judge.helps(full):
        effect = f"a scan needs {full.describe_saving(judge.now) or 'fewer deleted rows'}"
    return (
        f"{NOTHING_TO_COMPACT} by the table's options; with --strategy full, {files} of {size} "
        f"would be rewritten, and {effect}"
    )


add_step_command(
    app,
    find_steps()["compact"],
    CommandDetails(
        preview=partial(compact.plan_existing_partitions, with_decisions=True),
        explain_nothing=_explain_nothing,
        simulate=_simulate,
    ),
)
