"""The command ``sql``: a query over the tables of a catalog, which DuckDB executes."""

import re
from typing import TYPE_CHECKING, Annotated

import pyarrow as pa
import typer

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.cli.arguments import CatalogLocation, JsonOutput
from paimon_orch.cli.common import note_rows_not_visible, open_catalog
from paimon_orch.cli.help_page import new_app
from paimon_orch.cli.output import (
    FormatOption,
    OutputFormat,
    OutputOption,
    choose_format,
    write_result,
)
from paimon_orch.cli.registration import cli_command
from paimon_orch.cli.screen import LINES
from paimon_orch.errors import InputError, NotFoundError
from paimon_orch.optional_packages import require_package
from paimon_orch.table.scan.scan import Scan

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

app = new_app()

_IDENTIFIER = r"""("(?:[^"]|"")+"|[^\W\d][\w$]*)"""
_QUALIFIED_NAME = re.compile(rf"{_IDENTIFIER}\s*\.\s*{_IDENTIFIER}")

_Query = Annotated[
    str, typer.Argument(metavar="QUERY", help="SQL of DuckDB over tables DATABASE.TABLE.")
]


@cli_command(
    app,
    "sql /lake 'SELECT day, count(*) FROM shop.orders GROUP BY day'",
    "sql /lake 'FROM shop.orders WHERE id < 9' --output rows.csv",
    "sql /lake 'SELECT * FROM shop.\"orders$snapshots\"' --json",
)
def sql(
    ctx: typer.Context,
    location: CatalogLocation,
    query: _Query,
    form: FormatOption = OutputFormat.TABLE,
    file: OutputOption = None,
    output: JsonOutput = LINES,
) -> None:
    """Print the result of an SQL query over tables.

    DuckDB executes the query in this process. Only the columns, partitions and files that it needs
    are read, from the newest snapshot of each table; tables cannot be changed. Write a system table
    with quotes: DATABASE."TABLE$snapshots".
    """
    chosen = choose_format(form, file, output)
    require_package("duckdb", "sql", install="paimon-orch[sql]")
    import duckdb

    catalog = open_catalog(ctx, location)
    with duckdb.connect() as connection:
        # as read prints times
        connection.execute("SET TimeZone = 'UTC'")
        missing = _create_views(connection, catalog, query)
        try:
            result = connection.sql(query)
            if result is not None:  # some statements have no result
                write_result(pa.RecordBatchReader.from_stream(result), chosen, file)
        except duckdb.CatalogException as error:
            if missing:
                raise missing[0] from error
            hint = "; tables of the catalog are DATABASE.TABLE"
            raise InputError(f"{_describe(error)}{hint}") from error
        except (duckdb.Error, pa.ArrowException) as error:
            raise InputError(_describe(error)) from error


def _describe(error: Exception) -> str:
    """Return the message of DuckDB without the query, suggestions and tracebacks."""
    message = str(error).partition(". Detail: Python exception:")[0]
    return f"DuckDB: {message.partition(chr(10))[0]}"


def _create_views(
    connection: "DuckDBPyConnection", catalog: Catalog, query: str
) -> list[NotFoundError]:
    """Create a view of each table that a query may name; return the errors of the other names.

    A name in a comment or text, or of a column, is looked up too, which changes no result.
    """
    missing, databases = list[NotFoundError](), {*catalog.databases(), "sys"}
    for number, (database, name) in enumerate(_list_qualified_names(query)):
        if database not in databases:
            continue
        try:
            is_of_catalog = database == "sys" and "$" not in name
            opened = catalog.system(name) if is_of_catalog else catalog.open(f"{database}.{name}")
        except NotFoundError as error:
            missing.append(error)
            continue
        scan, source = opened.scan(), f"paimon_{number}"
        note_rows_not_visible(opened, scan)
        if isinstance(scan, Scan):
            scan.to_duckdb(connection, source)
        else:
            connection.register(source, scan)
        schema, view = _quote(database), _quote(name)
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        connection.execute(f"CREATE VIEW {schema}.{view} AS FROM {source}")
    return missing


def _list_qualified_names(query: str) -> list[tuple[str, str]]:
    """Return the pairs of identifiers with a dot between them, without repetitions."""
    pairs = _QUALIFIED_NAME.findall(query)
    return [*dict.fromkeys((_unquote(first), _unquote(second)) for first, second in pairs)]


def _unquote(identifier: str) -> str:
    return identifier[1:-1].replace('""', '"') if identifier.startswith('"') else identifier


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
