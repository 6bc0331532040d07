"""Commands on databases and tables as a whole: list, create, rename, drop."""

from pathlib import Path
from typing import Annotated

import typer

from paimon_orch.cli.common import (
    AsJson,
    DryRun,
    Identifier,
    Warehouse,
    open_catalog,
    parse_names,
    parse_pair,
    print_names,
)
from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.table.catalog import Catalog

DatabaseArgument = Annotated[str, typer.Argument(metavar="DB", help="name of the database")]

database_app = typer.Typer(help="List, create and drop databases.", no_args_is_help=True)


def add_commands(app: typer.Typer) -> None:
    """Register the commands of this module."""
    app.add_typer(database_app, name="database")
    app.command()(tables)
    app.command()(create)
    app.command()(rename)
    app.command()(drop)


def _open_existing(ctx: typer.Context, warehouse: str) -> Catalog:
    """Open a warehouse; raises :class:`NotFoundError` for a folder that does not exist."""
    catalog = open_catalog(ctx, warehouse)
    if catalog.databases():
        return catalog
    if not catalog.io.exists(catalog.root):
        raise NotFoundError(
            f"{warehouse} does not exist; check the path of the warehouse, or create a table in it by paimon-orch create"
        )
    if not catalog.io.remote and Path(catalog.root).is_file():
        raise InputError(f"{warehouse} is a file; a warehouse is a directory")
    return catalog


@database_app.command("list")
def list_databases(ctx: typer.Context, warehouse: Warehouse, as_json: AsJson = False) -> None:
    """Print the names of all databases."""
    print_names(_open_existing(ctx, warehouse).databases(), as_json=as_json)


@database_app.command("create")
def create_database(
    ctx: typer.Context,
    warehouse: Warehouse,
    database: DatabaseArgument,
    if_not_exists: Annotated[bool, typer.Option(help="do not fail if it exists")] = False,
) -> None:
    """Create an empty database; creating a table makes its database too."""
    open_catalog(ctx, warehouse).create_database(database, if_not_exists=if_not_exists)
    print(f"database {database} is there")


@database_app.command("drop")
def drop_database(
    ctx: typer.Context,
    warehouse: Warehouse,
    database: DatabaseArgument,
    cascade: Annotated[bool, typer.Option(help="with all its tables and their files")] = False,
    if_exists: Annotated[bool, typer.Option(help="do not fail if it does not exist")] = False,
    dry_run: DryRun = False,
) -> None:
    """Delete a database; one with tables requires --cascade."""
    catalog = open_catalog(ctx, warehouse)
    if dry_run:
        tables = catalog.list_tables_to_drop(database, cascade=cascade, if_exists=if_exists)
        for name in tables:
            print(_describe_dropped_files(catalog, f"{database}.{name}"))
        print(f"would delete database {database} with {len(tables)} tables; nothing was changed")
        return
    catalog.drop_database(database, cascade=cascade, if_exists=if_exists)
    print(f"deleted database {database}")


def tables(
    ctx: typer.Context,
    warehouse: Warehouse,
    database: Annotated[
        str | None, typer.Argument(metavar="DB", help="one database [default: all]")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the names of the tables."""
    catalog = _open_existing(ctx, warehouse)
    databases = catalog.databases() if database is None else [database]
    found = [f"{name}.{table}" for name in databases for table in catalog.tables(name)]
    print_names(found, as_json=as_json)


def create(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    columns: Annotated[str, typer.Option(help='e.g. "id BIGINT NOT NULL, dt STRING, v DOUBLE"')],
    primary_key: Annotated[str, typer.Option(help="columns, separated by commas")] = "",
    partition_by: Annotated[str, typer.Option(help="columns, separated by commas")] = "",
    option: Annotated[list[str] | None, typer.Option(help="key=value; may be repeated")] = None,
    comment: Annotated[str | None, typer.Option(help="comment of the table")] = None,
) -> None:
    """Create a table, and its database if need be."""
    open_catalog(ctx, warehouse).create_table(
        table,
        columns,
        primary_key=parse_names(primary_key),
        partition_by=parse_names(partition_by),
        options=dict(parse_pair(text, "--option bucket=2") for text in option or []),
        comment=comment,
    )
    print(f"created {table} in {warehouse}")


def rename(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    to: Annotated[str, typer.Argument(metavar="DB.TABLE", help="its new name")],
) -> None:
    """Give a table another name.

    Nothing may write to it meanwhile. An object store cannot do that, and is refused.
    """
    open_catalog(ctx, warehouse).rename_table(table, to)
    print(f"{table} is called {to} now")


def drop(
    ctx: typer.Context,
    warehouse: Warehouse,
    table: Identifier,
    yes: Annotated[
        bool, typer.Option("--yes", help="do not ask: needed without a terminal")
    ] = False,
    if_exists: Annotated[bool, typer.Option(help="do not fail if it does not exist")] = False,
    dry_run: DryRun = False,
) -> None:
    """Delete a table with all its files.

    Snapshots, tags and branches are deleted too; this cannot be undone.
    """
    catalog = open_catalog(ctx, warehouse)
    exists = catalog.can_drop_table(table, if_exists=if_exists)
    if dry_run:
        loss = _describe_dropped_files(catalog, table) if exists else f"{table} does not exist"
        print(f"{loss}; nothing was changed")
        return
    if not yes and not typer.confirm(f"delete {table} and all its files? This cannot be undone"):
        raise InputError(f"nothing was changed: {table} still exists")
    catalog.drop_table(table, if_exists=if_exists)
    print(f"deleted {table}")


def _describe_dropped_files(catalog: Catalog, identifier: str) -> str:
    """Return a sentence about the files that dropping a table deletes."""
    table = catalog.table(identifier)
    files, size = catalog.count_files(identifier)
    return (
        f"would delete {identifier} with {len(table.stores.snapshots.ids())} snapshots, {len(table.stores.snapshots.tags())} tags, "
        f"{len(table.branches.names())} branches and {files:,} files of {size:,} bytes"
    )
