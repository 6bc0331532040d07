"""Commands that repair what the doctor finds."""

import sys
from typing import Annotated

import typer

from paimon_orch.cli.arguments import CatalogLocation, DryRun, Identifier, JsonOutput, Yes
from paimon_orch.cli.common import confirm, open_table
from paimon_orch.cli.registration import register_command
from paimon_orch.cli.screen import LINES
from paimon_orch.errors import InputError
from paimon_orch.steps.common.step import run_step
from paimon_orch.steps.inspection.doctor.doctor_findings import DoctorRule
from paimon_orch.steps.repairs import repair as repair_step
from paimon_orch.steps.repairs.tag_before import describe_tag

_Rules = Annotated[
    list[str] | None,
    typer.Option(
        "--rule",
        metavar="RULE",
        help="Finding of doctor to repair, such as snapshot-gap; repeatable.",
        show_default="all that can be repaired",
    ),
]


def add_commands(app: typer.Typer) -> None:
    """Register the commands of this module."""
    register_command(
        app,
        repair,
        examples=[
            "repair /lake db.orders --dry-run",
            "repair /lake db.orders --rule snapshot-gap --yes",
        ],
    )


def repair(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    rules: _Rules = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    output: JsonOutput = LINES,
) -> None:
    """Repair what doctor finds in a table.

    Each repair commits a snapshot or writes a hint. Nothing is deleted: the tag
    before-repair-<UTC time> keeps the state before, and replaced hints and rows are put into the
    quarantine. Rows that are lost already remain lost. The exit status is 1 if a finding with
    severity error cannot be repaired.
    """
    target = open_table(ctx, location, table)
    planned = repair_step.plan(target, repair_step.RepairRequest(rules=_parse_rules(rules)))
    lines = _format_repairs(planned)
    if dry_run or not planned:
        end = "nothing was changed" if planned else "nothing to repair"
        values = planned.to_dict() | {"results": [], "tag": None}
        output.print_values(values, *lines, end)
    else:
        repairs = "; ".join(lines[: len(planned.actions)])
        confirm(f"repair {table}: {repairs}", yes=yes, undo="")
        result = run_step(repair_step.REPAIR, target, planned)
        done = [
            f"{action.rule}: {action.text}: {text}"
            for action, text in zip(planned.actions, result.results, strict=True)
        ]
        tagged = [] if result.tag is None else [describe_tag(target.stores.label, result.tag)]
        output.print_values(result.to_dict(), *done, *lines[len(done) :], *tagged)
    if planned.refused:
        sys.exit(1)


def _parse_rules(names: list[str] | None) -> frozenset[DoctorRule] | None:
    if not names:
        return None
    unknown = sorted(set(names) - set(DoctorRule))
    if unknown:
        raise InputError(
            f"--rule {', '.join(unknown)}: unknown; the rules are {', '.join(DoctorRule)}"
        )
    return frozenset(map(DoctorRule, names))


def _format_repairs(planned: repair_step.RepairPlan) -> list[str]:
    lines = [f"{action.rule}: {action.text}" for action in planned.actions]
    lines += [f"not repaired: {each.rule}: {each.reason}" for each in planned.refused]
    if planned.deferred:
        lines.append(f"after these repairs, run repair again for: {', '.join(planned.deferred)}")
    return lines
