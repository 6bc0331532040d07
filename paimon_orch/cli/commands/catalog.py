"""Commands on databases and whole tables: list, create, rename and drop."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any

import typer

from paimon_orch.catalog.backend import LostTableError
from paimon_orch.catalog.catalog import Catalog
from paimon_orch.catalog.named_catalogs import describe_named_catalogs
from paimon_orch.cli.arguments import CatalogLocation, DryRun, Identifier, JsonOutput, Yes
from paimon_orch.cli.common import confirm, open_catalog, parse_names, parse_pairs
from paimon_orch.cli.help_page import new_group
from paimon_orch.cli.registration import register_command
from paimon_orch.cli.screen import LINES
from paimon_orch.format.display import format_count
from paimon_orch.steps.common.step_report import describe_loss

_Database = Annotated[str, typer.Argument(metavar="DATABASE", help="Name of the database.")]
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
_IfExists = Annotated[bool, typer.Option(help="Succeed if it does not exist.", show_default=False)]
_IfNotExists = Annotated[
    bool, typer.Option(help="Succeed if it already exists.", show_default=False)
]
_Cascade = Annotated[
    bool, typer.Option(help="Also delete all its tables and their files.", show_default=False)
]

_CREATE_EXAMPLE = (
    "create /lake db.orders --columns 'id BIGINT, dt STRING, v INT' \\\n"
    "        --primary-key dt,id --partition-by dt --option bucket=4"
)


def add_commands(app: typer.Typer) -> None:
    """Register the commands of this module."""
    register_command(app, catalogs, has_allowances=False, examples=["catalogs --json"])
    register_command(app, tables, has_allowances=False, examples=["tables /lake db"])
    register_command(app, create, examples=[_CREATE_EXAMPLE], has_allowances=False)
    register_command(app, rename, examples=["rename /lake db.orders db.old_orders"])
    register_command(app, drop, examples=["drop /lake db.orders --dry-run"])
    databases = new_group()
    register_command(
        databases,
        list_databases,
        name="list",
        has_allowances=False,
        examples=["database list /lake"],
    )
    register_command(
        databases,
        create_database,
        name="create",
        has_allowances=False,
        examples=["database create /lake db --if-not-exists"],
    )
    register_command(
        databases,
        drop_database,
        name="drop",
        examples=["database drop /lake db --cascade --dry-run"],
    )
    app.add_typer(databases, name="database")


def _open_existing(ctx: typer.Context, location: str) -> Catalog:
    """Open a catalog; raises :class:`NotFoundError` if its location does not exist."""
    catalog = open_catalog(ctx, location)
    if not catalog.databases():
        catalog.require_exists()
    return catalog


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


def list_databases(
    ctx: typer.Context, location: CatalogLocation, output: JsonOutput = LINES
) -> None:
    """Print the names of all databases."""
    output.print_names(_open_existing(ctx, location).databases())


def create_database(
    ctx: typer.Context,
    location: CatalogLocation,
    database: _Database,
    if_not_exists: _IfNotExists = False,
    output: JsonOutput = LINES,
) -> None:
    """Create an empty database.

    The command create also creates the database of a new table.
    """
    open_catalog(ctx, location).create_database(database, if_not_exists=if_not_exists)
    output.print_values({"database": database}, f"database {database} exists")


def drop_database(
    ctx: typer.Context,
    location: CatalogLocation,
    database: _Database,
    cascade: _Cascade = False,
    yes: Yes = False,
    if_exists: _IfExists = False,
    dry_run: DryRun = False,
    output: JsonOutput = LINES,
) -> None:
    """Delete a database.

    Fails if the database has tables, unless --cascade is set.
    """
    catalog = open_catalog(ctx, location)
    names = catalog.list_tables_to_drop(database, cascade=cascade, if_exists=if_exists)
    values: dict[str, object] = {"database": database, "tables": names}
    if dry_run or (names and not yes):  # tables that are damaged can be dropped, not measured
        losses = [_measure_table(catalog, f"{database}.{name}") for name in names]
        action = f"delete database {database} with {format_count(len(names), 'table')}"
        action += f": {'; '.join(map(_describe_table, losses))}" if losses else ""
        if dry_run:
            text = f"would {action}; nothing was changed"
            output.print_values(values | {"tables": losses}, text)
            return
        confirm(action)
    catalog.drop_database(database, cascade=cascade, if_exists=if_exists)
    output.print_values(values, f"deleted database {database}")


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


def drop(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    yes: Yes = False,
    if_exists: _IfExists = False,
    dry_run: DryRun = False,
    output: JsonOutput = LINES,
) -> None:
    """Delete a table with all its files.

    Snapshots, tags and branches are deleted too; this cannot be undone.
    """
    catalog = open_catalog(ctx, location)
    exists = catalog.can_drop_table(table, if_exists=if_exists)
    missing: dict[str, object] = {"table": table, "deleted": False}
    if not exists:
        output.print_values(missing, f"{table} does not exist; nothing was changed")
        return
    if dry_run or not yes:  # a table that is damaged can be dropped, not measured
        loss = _measure_table(catalog, table)
        action = f"delete {_describe_table(loss)}"
        if dry_run:
            text = f"would {action}; nothing was changed"
            output.print_values(loss | {"deleted": False}, text)
            return
        confirm(action)
    catalog.drop_table(table, if_exists=if_exists)
    output.print_values({"table": table, "deleted": True}, f"deleted {table}")


def _measure_table(catalog: Catalog, identifier: str) -> dict[str, Any]:
    """List what dropping a table deletes: snapshots, tags, branches, files and bytes."""
    files, size = catalog.count_files(identifier)
    loss: dict[str, Any] = {"table": identifier, "snapshots": 0, "tags": [], "branches": []}
    with suppress(LostTableError):
        table = catalog.table(identifier)
        loss["snapshots"] = len(table.stores.snapshots.ids())
        loss["tags"] = table.stores.snapshots.tags()
        loss["branches"] = table.branches.names()
    return loss | {"files": files, "bytes": size}


def _describe_table(loss: Mapping[str, Any]) -> str:
    units = {"snapshot": "snapshots", "tag": "tags", "branch": "branches", "file": "files"}
    text = describe_loss({unit: loss[key] for unit, key in units.items()})
    return f"{loss['table']} with {text} of {format_count(loss['bytes'], 'byte')}"
