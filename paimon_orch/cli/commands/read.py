"""The command ``read``: prints the rows of a table or of a system table."""

import re
from typing import Annotated

import typer

from paimon_orch.cli.arguments import (
    CatalogLocation,
    Identifier,
    JsonOutput,
    MergeLevel0,
    RowFilter,
    SnapshotId,
    TagSelector,
    Timestamp,
    Watermark,
)
from paimon_orch.cli.common import note_rows_not_visible, open_readable
from paimon_orch.cli.output import (
    FormatOption,
    OutputFormat,
    OutputOption,
    choose_format,
    write_result,
)
from paimon_orch.cli.registration import register_command
from paimon_orch.cli.screen import LINES
from paimon_orch.errors import InputError

_EXAMPLES = [
    "read /lake db.orders --where \"status = 'OPEN'\" --limit 10",
    "read /lake db.orders --snapshot 12 --output orders.csv",
    "read /lake 'db.orders$snapshots' --json",
    "read /lake 'db.orders$files' --format wide | less -S",
    "read /lake sys.partitions --order-by 'file_count desc'",
]


_Columns = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN,...",
        help="Columns to read, separated by commas; \"variant_get(v, '$.age', 'int') as age\" is a "
        "value of a VARIANT column.",
        show_default="all",
    ),
]
_Limit = Annotated[int | None, typer.Option(metavar="N", min=0, help="Maximum number of rows.")]
_Order = Annotated[
    str | None,
    typer.Option(metavar='"COLUMN ASC,..."', help='Sort order, e.g. "price desc nulls last, id".'),
]
_Branch = Annotated[
    str | None, typer.Option(metavar="BRANCH", help="Branch to read.", show_default="main")
]

_COMMA = re.compile(r",(?=(?:[^()']|'[^']*'|\((?:[^()']|'[^']*')*\))*$)")
"""A comma that is not an argument separator: what follows has balanced parentheses and quotes."""


def add_commands(app: typer.Typer) -> None:
    """Register the command of this module."""
    register_command(app, read, examples=_EXAMPLES, has_allowances=False)


def read(
    ctx: typer.Context,
    location: CatalogLocation,
    table: Identifier,
    columns: _Columns = None,
    where: RowFilter = None,
    limit: _Limit = None,
    order_by: _Order = None,
    snapshot: SnapshotId = None,
    tag: TagSelector = None,
    timestamp: Timestamp = None,
    watermark: Watermark = None,
    branch: _Branch = None,
    merge_level_0: MergeLevel0 = None,
    form: FormatOption = OutputFormat.TABLE,
    file: OutputOption = None,
    output: JsonOutput = LINES,
) -> None:
    """Print the rows of a table.

    The format table prints the first 100 rows in columns, or with one value per line if they are
    wider than the terminal; wide always prints columns, and vertical one value per line. The format
    json, or --json, prints one JSON array, and jsonl one JSON object per row; arrow is an Arrow IPC
    stream. DATABASE.TABLE$NAME
    reads a system table, such as $snapshots, $files or $partitions; sys.tables, sys.partitions and
    sys.all_table_options are system tables of the catalog.
    """
    if branch == "":
        raise InputError("--branch is empty; omit it to read main")
    chosen = choose_format(form, file, output)
    identifier = table if branch is None else f"{table}$branch_{branch}"
    opened = open_readable(ctx, location, identifier)
    scan = opened.scan(
        None if columns is None else _split_columns(columns),
        where,
        limit=limit,
        order_by=order_by,
        snapshot_id=snapshot,
        tag=tag,
        timestamp=timestamp,
        watermark=watermark,
        merge_level_0=merge_level_0,
    )
    note_rows_not_visible(opened, scan)
    write_result(scan.to_reader(), chosen, file)


def _split_columns(text: str) -> list[str]:
    names = _COMMA.split(text) if "(" in text else text.split(",")
    return [name.strip() for name in names]
