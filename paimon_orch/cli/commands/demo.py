"""The command that shows all of it with real flights."""

import sys
from typing import Annotated

import typer

from paimon_orch.cli.arguments import JsonOutput
from paimon_orch.cli.help_page import new_app
from paimon_orch.cli.registration import cli_command
from paimon_orch.cli.screen import LINES, console, error_console

app = new_app()

_DemoWarehouse = Annotated[
    str | None,
    typer.Option(
        metavar="DIRECTORY", help="Directory for the table.", show_default="a new directory"
    ),
]
_DemoMonths = Annotated[
    int, typer.Option(metavar="N", min=1, max=12, help="Months of 2013 to load.")
]


@cli_command(app, "demo --months 3")
def demo(
    warehouse: _DemoWarehouse = None, months: _DemoMonths = 12, output: JsonOutput = LINES
) -> None:
    """Load, compact and check a table of flights.

    Loads three waves of upserts with real flights, compacts the table after each wave, and compares
    all rows at the end. With --json, progress is printed on stderr.
    """
    from paimon_orch.demo.flights import FLIGHT_BOARD_TABLE
    from paimon_orch.demo.pipeline import run_demo
    from paimon_orch.demo.warehouse import fresh_warehouse

    location = warehouse or fresh_warehouse()
    is_correct = run_demo(location, months, error_console if output.is_json else console)
    values = {"warehouse": location, "table": FLIGHT_BOARD_TABLE, "months": months}
    output.print_values(values | {"is_correct": is_correct})
    if not is_correct:
        sys.exit(1)
