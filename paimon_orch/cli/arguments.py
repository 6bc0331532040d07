"""Arguments and options that several commands share."""

from contextlib import suppress
from typing import Annotated

import typer

from paimon_orch.cli.help_page import CATALOG_PARAMETER
from paimon_orch.cli.registration import declare_option
from paimon_orch.cli.screen import Output
from paimon_orch.errors import PaimonError
from paimon_orch.safe_text import is_plain
from paimon_orch.steps.common.executor_choice import DEFAULT_MASTER, ExecutorKind
from paimon_orch.steps.common.snapshot_selection import SnapshotRequest


def _check_master(ctx: typer.Context, master: str | None) -> str | None:
    if master is not None and not ctx.resilient_parsing:  # a shell completes the arguments
        from paimon_orch.spark.session.master_url import check_master

        check_master(master)
    return master


def _complete_tables(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the tables of the catalog whose names start with a text; none after an error."""
    location = ctx.params.get(CATALOG_PARAMETER)
    if not location:
        return []
    from paimon_orch.cli.common import open_catalog

    prefix, separator, _ = incomplete.partition(".")
    with suppress(PaimonError, OSError):
        catalog = open_catalog(ctx, location)
        databases = [prefix] if separator else catalog.databases()
        names = [f"{name}.{table}" for name in databases for table in catalog.tables(name)]
        # a shell cannot complete names with characters that cannot be seen
        return [name for name in names if name.startswith(incomplete) and is_plain(name)]
    return []


CatalogLocation = Annotated[
    str,
    typer.Argument(
        metavar="CATALOG",
        help="Directory of a warehouse, s3://bucket/path, or the name of a configured catalog. "
        "May be omitted if the environment variable PAIMON_WAREHOUSE has one of these.",
    ),
]
Identifier = Annotated[
    str,
    typer.Argument(
        metavar="DATABASE.TABLE",
        help="Name of the table with its database.",
        autocompletion=_complete_tables,
    ),
]
DatabaseName = Annotated[str, typer.Argument(metavar="DATABASE", help="Name of the database.")]
JsonOutput = Annotated[Output, typer.Option("--json", help="Print one JSON document.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print what would be done, and change nothing.")
]
Simulate = Annotated[
    bool,
    typer.Option(
        "--simulate", help="Measure the effect on a sample, and change nothing in the table."
    ),
]
Yes = Annotated[
    bool, typer.Option("--yes", help="Do not ask for confirmation; required without a terminal.")
]
TablePattern = Annotated[
    str,
    typer.Argument(
        metavar="[PATTERN]", help="Shell pattern of DATABASE.TABLE, such as 'sales.*'; all tables."
    ),
]
SnapshotId = Annotated[
    int | None, declare_option(SnapshotRequest, "snapshot_id", default="the newest")
]
Master = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Spark master, or sc://host:port for Spark Connect.",
        show_default=DEFAULT_MASTER,
        callback=_check_master,
    ),
]
ExecutorOption = Annotated[
    ExecutorKind,
    typer.Option(
        "--executor",
        help="Run in processes of this machine, which need no Java, or on Spark. auto selects Spark "
        "for more than 256 MB, or with --master.",
    ),
]
