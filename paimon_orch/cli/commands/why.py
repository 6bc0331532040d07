"""The command ``why``: what makes a table slow or large, and which command helps."""

import typer

from paimon_orch.cli.arguments import CatalogLocation, Identifier, JsonOutput, Simulate
from paimon_orch.cli.common import open_table
from paimon_orch.cli.help_page import new_app
from paimon_orch.cli.registration import cli_command
from paimon_orch.cli.screen import LINES

app = new_app()


@cli_command(app, "why /lake db.orders", "why /lake db.orders --simulate")
def why(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    simulate: Simulate = False,
    output: JsonOutput = LINES,
) -> None:
    """Explain what makes a table slow or large.

    Shows what a scan reads now, which command saves most of it, and what a scan reads afterwards.
    The figures are estimated from metadata; nothing is changed. With --simulate, a compaction that is
    named is also measured, as by compact --simulate.
    """
    from paimon_orch.steps.inspection.health_metrics import COMPACT_FULLY, COMPACTIONS
    from paimon_orch.steps.inspection.verdict.verdict import judge

    target = open_table(ctx, location, table)
    verdict = judge(target)
    values, lines = verdict.to_dict(), [verdict.describe()]
    if simulate:
        from paimon_orch.steps.compaction import simulate as simulation_step
        from paimon_orch.steps.compaction.plan import CompactRequest

        simulation = None
        if verdict.remedy is not None and verdict.remedy.command in COMPACTIONS:
            is_full = verdict.remedy.command == COMPACT_FULLY
            request = CompactRequest(strategy="full" if is_full else "minor")
            simulation = simulation_step.simulate(target, request)
        values["simulation"] = None if simulation is None else simulation.to_dict()
        lines.append(
            "No compaction is named: nothing was measured."
            if simulation is None
            else simulation.describe()
        )
    output.print_values(values, *lines)
