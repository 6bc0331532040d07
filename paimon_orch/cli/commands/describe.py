"""The commands ``describe``, ``history`` and ``count``: what a table is, and how it came to be."""

from functools import partial
from itertools import islice
from typing import Annotated

import pendulum
import typer

from paimon_orch.cli.arguments import CatalogLocation, Identifier, JsonOutput
from paimon_orch.cli.calls import ScanCall
from paimon_orch.cli.common import open_table
from paimon_orch.cli.help_page import new_app
from paimon_orch.cli.registration import cli_command
from paimon_orch.cli.screen import LINES, print_lines
from paimon_orch.cli.table_layout import print_rows
from paimon_orch.format.options.secret_options import hide_secrets
from paimon_orch.format.schema import TableSchema
from paimon_orch.format.schema_ddl import build_create_statement
from paimon_orch.format.snapshot import Snapshot
from paimon_orch.format.types.data_types import Field, type_to_sql
from paimon_orch.safe_text import escape_name
from paimon_orch.table.table import Table

app = new_app()

_DEFAULT_HISTORY = 20

_AsDdl = Annotated[bool, typer.Option("--ddl", help="Print a CREATE TABLE statement of Flink SQL.")]
_HistoryLimit = Annotated[
    int, typer.Option("--limit", metavar="N", min=1, help="Maximum number of snapshots.")
]


@cli_command(app, "describe /lake db.orders", "describe /lake db.orders --ddl > orders.sql")
def describe(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    as_ddl: _AsDdl = False,
    output: JsonOutput = LINES,
) -> None:
    """Show the columns, keys, partitions, options and comment of a table.

    Options with credentials are hidden. The statement has all that Flink SQL can declare; what it
    cannot, such as default values, is in comments.
    """
    opened = open_table(ctx, location, table)
    schema = opened.stores.get_schema()
    if as_ddl:
        ddl = build_create_statement(opened.identifier, schema)
        output.print_values({"table": opened.identifier, "ddl": ddl}, *ddl.split("\n"))
        return
    values = _to_values(opened, schema)
    output.print_report(values, partial(_print_description, opened, schema))


def _to_values(table: Table, schema: TableSchema) -> dict[str, object]:
    return {
        "table": table.identifier,
        "location": table.paths.root,
        "comment": schema.comment,
        "schema_id": schema.id,
        "columns": [
            {
                "name": field.name,
                "type": type_to_sql(field.type.with_nullable(True)),
                "nullable": field.type.nullable,
                "default": field.default_value,
                "comment": field.description,
            }
            for field in schema.fields
        ],
        "primary_key": list(schema.primary_keys),
        "partition_by": list(schema.partition_keys),
        "options": hide_secrets(schema.options),
    }


def _print_description(table: Table, schema: TableSchema) -> None:
    lines = [
        ("table", table.identifier),
        ("location", table.paths.root),
        ("comment", schema.comment),
        ("primary key", ", ".join(schema.primary_keys) or "none"),
        ("partitioned by", ", ".join(schema.partition_keys) or "none"),
        ("schema", f"{schema.id} of {_format_time(schema.time_millis)}"),
    ]
    width = max(len(title) for title, _ in lines)
    for title, value in lines:
        if value:
            print_lines(f"{title.ljust(width)}  {escape_name(value)}")
    print_lines("")
    _print_columns(schema)
    if schema.options:
        print_lines("")
        print_rows(("option", "value"), sorted(hide_secrets(schema.options).items()))


def _print_columns(schema: TableSchema) -> None:
    names = ["column", "type", "key", "default", "comment"]
    rows = [_format_column(field, schema) for field in schema.fields]
    shown = [number for number in range(len(names)) if any(row[number] for row in rows)]
    print_rows([names[n] for n in shown], [[row[n] for n in shown] for row in rows])


def _format_column(field: Field, schema: TableSchema) -> list[str]:
    keys = [
        title
        for title, columns in (
            ("primary key", schema.primary_keys),
            ("partition", schema.partition_keys),
        )
        if field.name in columns
    ]
    return [
        field.name,
        type_to_sql(field.type),
        ", ".join(keys),
        field.default_value or "",
        field.description or "",
    ]


@cli_command(app, "history /lake db.orders --limit 5")
def history(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    limit: _HistoryLimit = _DEFAULT_HISTORY,
    output: JsonOutput = LINES,
) -> None:
    """Show the newest snapshots of a table.

    Records are the rows in all files, before a merge by key; the change is that of the snapshot.
    """
    snapshots = open_table(ctx, location, table).stores.snapshots
    newest = list(islice(snapshots.walk_back(), limit + 1))
    shown = newest[:limit]
    values = list(map(_snapshot_to_values, shown))
    output.print_report(values, partial(_print_history, newest, limit))


def _print_history(newest: list[Snapshot], limit: int) -> None:
    if not newest:
        print_lines("the table is empty: it has no snapshot")
        return
    print_rows(
        ("snapshot", "time", "kind", "records", "change", "schema", "user"),
        list(map(_format_snapshot, newest[:limit])),
    )
    if len(newest) > limit:
        print_lines("and older snapshots; --limit shows more")


def _snapshot_to_values(snapshot: Snapshot) -> dict[str, object]:
    return {
        "snapshot_id": snapshot.id,
        "time_millis": snapshot.time_millis,
        "kind": snapshot.commit_kind.value,
        "total_record_count": snapshot.total_record_count,
        "delta_record_count": snapshot.delta_record_count,
        "schema_id": snapshot.schema_id,
        "user": snapshot.commit_user,
        "commit_identifier": snapshot.commit_identifier,
        "watermark": snapshot.watermark,
    }


def _format_snapshot(snapshot: Snapshot) -> list[str]:
    return [
        str(snapshot.id),
        _format_time(snapshot.time_millis),
        snapshot.commit_kind.value,
        f"{snapshot.total_record_count:,}",
        f"{snapshot.delta_record_count:+,}",
        str(snapshot.schema_id),
        snapshot.commit_user,
    ]


def _format_time(millis: int) -> str:
    return f"{pendulum.from_timestamp(millis / 1000, tz='local'):YYYY-MM-DD HH:mm:ss Z}"


@cli_command(app, "count /lake db.orders", "count /lake db.orders --where \"dt = '2026-01-31'\"")
def count(call: ScanCall) -> None:
    """Count the rows of a table.

    Reads only metadata where no merge and no filter is needed, and otherwise only the columns of
    the key and of the filter.
    """
    rows = call.open_scan(call.table).count()
    call.output.print_values({"table": call.table, "rows": rows}, str(rows))
