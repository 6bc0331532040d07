"""Reads and writes tables with pypaimon, in its environment; commands: see `peers`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from pypaimon import CatalogFactory, Schema
from pypaimon.schema.data_types import AtomicInteger, DataTypeParser, PyarrowFieldParser
from pypaimon.schema.schema_change import SchemaChange

sys.path.append(str(Path(__file__).resolve().parents[2]))
from support.golden import arrow_table, canonical_rows
from support.peers.protocol import serve

Record = dict[str, Any]
# The path of a warehouse, or the options of a catalog.
Address = str | dict[str, str]


def create(warehouse: Address, table: str, spec: Record) -> None:
    """Create a table, and its database if it does not exist."""
    ids = AtomicInteger(-1)
    fields = [DataTypeParser.parse_data_field(_without_ids(f), ids) for f in spec["fields"]]
    schema = Schema(
        fields=fields,
        partition_keys=spec["partition_keys"],
        primary_keys=spec["primary_keys"],
        options=spec["options"],
    )
    catalog = _catalog(warehouse)
    catalog.create_database(table.partition(".")[0], True)
    catalog.create_table(table, schema, False)


def read(warehouse: Address, table: str, options: dict[str, str]) -> list[Record]:
    """Return all rows."""
    opened = _catalog(warehouse).get_table(table)
    if options:
        opened = opened.copy(options)
    builder = opened.new_read_builder()
    rows = builder.new_read().to_arrow(builder.new_scan().plan().splits())
    return [dict(zip(rows.column_names, row, strict=True)) for row in canonical_rows(rows)]


def write(warehouse: Address, table: str, rows: list[Record], *, replace: bool = False) -> None:
    """Commit rows; with `replace` they replace the partitions that receive rows."""
    opened = _catalog(warehouse).get_table(table)
    builder = opened.new_batch_write_builder()
    if replace:
        builder = builder.overwrite()
    writer, commit = builder.new_write(), builder.new_commit()
    writer.write_arrow(arrow_table(rows, PyarrowFieldParser.from_paimon_schema(opened.fields)))
    commit.commit(writer.prepare_commit())
    writer.close()
    commit.close()


def overwrite(warehouse: Address, table: str, rows: list[Record]) -> None:
    """Replace the partitions that receive rows."""
    write(warehouse, table, rows, replace=True)


def update(warehouse: Address, table: str, rows: list[Record], gone: list[int]) -> None:
    """Update columns of rows by `_ROW_ID`, and delete other rows by their ids."""
    opened = _catalog(warehouse).get_table(table)
    kinds = PyarrowFieldParser.from_paimon_schema(opened.fields)
    names = [name for name in rows[0] if name != "_ROW_ID"]
    typed = pa.schema([("_ROW_ID", pa.int64()), *(kinds.field(name) for name in names)])
    for change in ("update", "delete") if gone else ("update",):
        builder = opened.new_batch_write_builder()
        updating, commit = builder.new_update().with_update_type(names), builder.new_commit()
        if change == "update":
            messages = updating.update_by_arrow_with_row_id(arrow_table(rows, typed))
        else:
            messages = updating.delete_by_row_id(gone)
        commit.commit(messages)
        commit.close()


def alter(warehouse: Address, table: str, changes: list[list[Any]]) -> None:
    """Change the schema."""
    make = {
        "add": lambda name, kind: SchemaChange.add_column(
            name, DataTypeParser.parse_data_type(kind)
        ),
        "drop": SchemaChange.drop_column,
        "rename": SchemaChange.rename_column,
        "type": lambda name, kind: SchemaChange.update_column_type(
            name, DataTypeParser.parse_data_type(kind)
        ),
    }
    parsed = [make[change](*arguments) for change, *arguments in changes]
    _catalog(warehouse).alter_table(table, parsed)


def tag(warehouse: Address, table: str, name: str) -> None:
    """Tag the newest snapshot."""
    _catalog(warehouse).get_table(table).create_tag(name)


def branch(warehouse: Address, table: str, name: str, at: str) -> None:
    """Create a branch from a tag."""
    _catalog(warehouse).create_branch(table, name, at)


def _catalog(warehouse: Address) -> Any:
    return CatalogFactory.create(
        {"warehouse": warehouse} if isinstance(warehouse, str) else warehouse
    )


def _without_ids(part: Any) -> Any:
    # The parser accepts ids for all fields or for none.
    if isinstance(part, dict):
        return {key: _without_ids(value) for key, value in part.items() if key != "id"}
    return [_without_ids(item) for item in part] if isinstance(part, list) else part


if __name__ == "__main__":
    commands = (create, read, write, overwrite, update, alter, tag, branch)
    serve({command.__name__: command for command in commands})
