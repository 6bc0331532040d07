"""The command ``read``: prints the rows of a table or of a system table."""

import re
from dataclasses import dataclass

from paimon_orch.cli.calls import ScanCall
from paimon_orch.cli.help_page import new_app
from paimon_orch.cli.output import (
    FormatOption,
    OutputFormat,
    OutputOption,
    choose_format,
    write_result,
)
from paimon_orch.cli.registration import cli_command, option
from paimon_orch.errors import InputError

app = new_app()


_COMMA = re.compile(r",(?=(?:[^()']|'[^']*'|\((?:[^()']|'[^']*')*\))*$)")
"""A comma that is not an argument separator: what follows has balanced parentheses and quotes."""


@dataclass(frozen=True, kw_only=True)
class ReadCall(ScanCall):
    """A call of ``read``."""

    columns: str | None = option(
        "Columns to read, separated by commas; \"variant_get(v, '$.age', 'int') as age\" is a value "
        "of a VARIANT column.",
        metavar="COLUMN,...",
        show_default="all",
    )
    limit: int | None = option("Maximum number of rows.", metavar="N", min=0)
    order_by: str | None = option(
        'Sort order, e.g. "price desc nulls last, id".', metavar='"COLUMN ASC,..."'
    )
    branch: str | None = option("Branch to read.", metavar="BRANCH", show_default="main")
    form: FormatOption = OutputFormat.TABLE
    file: OutputOption = None


@cli_command(
    app,
    "read /lake db.orders --where \"status = 'OPEN'\" --limit 10",
    "read /lake db.orders --snapshot 12 --output orders.csv",
    "read /lake 'db.orders$snapshots' --json",
    "read /lake 'db.orders$files' --format wide | less -S",
    "read /lake sys.partitions --order-by 'file_count desc'",
)
def read(call: ReadCall) -> None:
    """Print the rows of a table.

    The format table prints the first 100 rows in columns, or with one value per line if they are
    wider than the terminal; wide always prints columns, and vertical one value per line. The format
    json, or --json, prints one JSON array, and jsonl one JSON object per row; arrow is an Arrow IPC
    stream. DATABASE.TABLE$NAME
    reads a system table, such as $snapshots, $files or $partitions; sys.tables, sys.partitions and
    sys.all_table_options are system tables of the catalog.
    """
    if call.branch == "":
        raise InputError("--branch is empty; omit it to read main")
    chosen = choose_format(call.form, call.file, call.output)
    scan = call.open_scan(
        call.table if call.branch is None else f"{call.table}$branch_{call.branch}",
        None if call.columns is None else _split_columns(call.columns),
        limit=call.limit,
        order_by=call.order_by,
    )
    write_result(scan.to_reader(), chosen, call.file)


def _split_columns(text: str) -> list[str]:
    names = _COMMA.split(text) if "(" in text else text.split(",")
    return [name.strip() for name in names]
