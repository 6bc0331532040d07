"""Commands on databases and whole tables: list, create and rename."""

from typing import Annotated

import typer

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.catalog.named_catalogs import describe_named_catalogs
from paimon_orch.cli.arguments import CatalogLocation, DatabaseName, Identifier, JsonOutput
from paimon_orch.cli.common import open_catalog, parse_names, parse_pairs
from paimon_orch.cli.help_page import new_app, new_group
from paimon_orch.cli.registration import cli_command
from paimon_orch.cli.screen import LINES
from paimon_orch.cli.step_command import add_group_steps

app = new_app()
_databases = new_group()

_OptionalDatabase = Annotated[
    str | None,
    typer.Argument(metavar="DATABASE", help="List only the tables of this database."),
]
_NewName = Annotated[
    str,
    typer.Argument(metavar="NEW_DATABASE.TABLE", help="New name of the table with its database."),
]
_ColumnDefinitions = Annotated[
    str,
    typer.Option(
        metavar='"NAME TYPE,..."', help='Columns, e.g. "id BIGINT NOT NULL, dt STRING, v DOUBLE".'
    ),
]
_PrimaryKey = Annotated[
    str,
    typer.Option(metavar="COLUMN,...", help="Columns of the primary key, separated by commas."),
]
_PartitionBy = Annotated[
    str, typer.Option(metavar="COLUMN,...", help="Partition columns, separated by commas.")
]
_TableOptions = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="KEY=VALUE", help="Table option; may be repeated."),
]
_Comment = Annotated[str | None, typer.Option(metavar="TEXT", help="Comment of the table.")]
_IfNotExists = Annotated[
    bool, typer.Option(help="Succeed if it already exists.", show_default=False)
]


def _open_existing(ctx: typer.Context, location: str) -> Catalog:
    """Open a catalog; raises :class:`NotFoundError` if its location does not exist."""
    catalog = open_catalog(ctx, location)
    if not catalog.databases():
        catalog.require_exists()
    return catalog


@cli_command(app, "catalogs --json")
def catalogs(output: JsonOutput = LINES) -> None:
    """Print the configured catalogs.

    The file .paimon_orch.yaml and environment variables configure them. Secrets are not printed.
    """
    entries = describe_named_catalogs()
    lines = [
        " ".join(
            filter(None, (entry["name"], entry["metastore"], entry["uri"], entry["warehouse"]))
        )
        for entry in entries
    ]
    output.print_values(entries, *(lines or ["none"]))


@cli_command(_databases, "database list /lake", name="list")
def list_databases(
    ctx: typer.Context, location: CatalogLocation, output: JsonOutput = LINES
) -> None:
    """Print the names of all databases."""
    output.print_names(_open_existing(ctx, location).databases())


@cli_command(_databases, "database create /lake db --if-not-exists", name="create")
def create_database(
    ctx: typer.Context,
    location: CatalogLocation,
    database: DatabaseName,
    if_not_exists: _IfNotExists = False,
    output: JsonOutput = LINES,
) -> None:
    """Create an empty database.

    The command create also creates the database of a new table.
    """
    open_catalog(ctx, location).create_database(database, if_not_exists=if_not_exists)
    output.print_values({"database": database}, f"database {database} exists")


@cli_command(app, "tables /lake db")
def tables(
    ctx: typer.Context,
    location: CatalogLocation,
    database: _OptionalDatabase = None,
    output: JsonOutput = LINES,
) -> None:
    """Print the names of the tables."""
    catalog = _open_existing(ctx, location)
    databases = catalog.databases() if database is None else [database]
    identifiers = [f"{name}.{table}" for name in databases for table in catalog.tables(name)]
    output.print_names(identifiers)


@cli_command(
    app,
    "create /lake db.orders --columns 'id BIGINT, dt STRING, v INT' \\\n"
    "        --primary-key dt,id --partition-by dt --option bucket=4",
)
def create(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    columns: _ColumnDefinitions,
    primary_key: _PrimaryKey = "",
    partition_by: _PartitionBy = "",
    option: _TableOptions = None,
    comment: _Comment = None,
    output: JsonOutput = LINES,
) -> None:
    """Create a table, and its database if it does not exist."""
    created = open_catalog(ctx, location).create_table(
        table,
        columns,
        primary_key=parse_names(primary_key),
        partition_by=parse_names(partition_by),
        options=parse_pairs(option, "--option bucket=2"),
        comment=comment,
    )
    values: dict[str, object] = {
        "table": table,
        "location": created.paths.root,
        "schema_id": created.stores.get_schema().id,
    }
    output.print_values(values, f"created {table} in {location}")


@cli_command(app, "rename /lake db.orders db.old_orders", has_allowances=True)
def rename(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    to: _NewName,
    output: JsonOutput = LINES,
) -> None:
    """Rename a table.

    No job may write to the table at the same time. Fails for tables in object stores, which have no
    atomic rename.
    """
    open_catalog(ctx, location).rename_table(table, to)
    output.print_values({"table": to, "previous_name": table}, f"renamed {table} to {to}")


add_group_steps(app, "database", _databases)
