"""Reads and writes tables with pypaimon-rust, in its environment; commands: see `peers`."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from pypaimon_rust.datafusion import PaimonCatalog, SQLContext

sys.path.append(str(Path(__file__).resolve().parents[2]))
from support.golden import arrow_table, canonical_rows
from support.peers.protocol import serve

Record = dict[str, Any]
# The path of a warehouse, or the options of a catalog.
Address = str | dict[str, str]

_ATOMS = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "CHAR": pa.string(),
    "VARCHAR": pa.string(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "VARBINARY": pa.binary(),
    "BYTES": pa.binary(),
    "DATE": pa.date32(),
}


def create(warehouse: Address, table: str, spec: Record) -> None:
    """Create a table, and its database if it does not exist."""
    _sql(warehouse, f"CREATE SCHEMA IF NOT EXISTS peer.{table.partition('.')[0]}")
    _sql(warehouse, _create_table(f"peer.{table}", spec))


def read(
    warehouse: Address, table: str, options: dict[str, str], where: list[Any] | None = None
) -> list[Record]:
    """Return all rows, or those that match a condition."""
    builder = _table(warehouse, table).new_read_builder(options)
    if where is not None:
        column, op, value = where
        method = {"=": "equal", "<>": "notEqual", "<": "lessThan", ">=": "greaterOrEqual"}[op]
        builder = builder.with_filter({"method": method, "field": column, "literals": [value]})
    records = []
    for batch in builder.new_read().read(builder.new_scan().plan().splits()):
        rows = pa.Table.from_batches([batch])
        records += [dict(zip(rows.column_names, row, strict=True)) for row in canonical_rows(rows)]
    return records


def write(warehouse: Address, table: str, rows: list[Record], *, replace: bool = False) -> None:
    """Commit rows; with `replace` they replace the partitions that receive rows."""
    opened = _table(warehouse, table)
    builder = opened.new_batch_write_builder()
    if replace:
        builder = builder.with_overwrite()
    writer, commit = builder.new_write(), builder.new_commit()
    for part in arrow_table(rows, _arrow_schema(opened)).to_batches():
        writer.write_arrow(part)
    commit.commit(writer.prepare_commit())
    writer.close()
    commit.close()


def overwrite(warehouse: Address, table: str, rows: list[Record]) -> None:
    """Replace the partitions that receive rows."""
    write(warehouse, table, rows, replace=True)


def delete(warehouse: Address, table: str, rows: list[Record]) -> None:
    """Delete the rows that have one of the given values in column k."""
    keys = ", ".join(str(row["k"]) for row in rows)
    _sql(warehouse, f"DELETE FROM peer.{table} WHERE k IN ({keys})")  # noqa: S608 - numbers


def alter(warehouse: Address, table: str, changes: list[list[Any]]) -> None:
    """Change the schema."""
    for kind, name, *argument in changes:
        if kind == "add":
            change = f"ADD COLUMN {name} {_sql_type(argument[0])}"
        elif kind == "drop":
            change = f"DROP COLUMN {name}"
        elif kind == "rename":
            change = f"RENAME COLUMN {name} TO {argument[0]}"
        else:
            change = f"ALTER COLUMN {name} SET DATA TYPE {_sql_type(argument[0])}"
        _sql(warehouse, f"ALTER TABLE peer.{table} {change}")


def tag(warehouse: Address, table: str, name: str) -> None:
    """Tag the newest snapshot."""
    _sql(warehouse, f"CALL sys.create_tag(table => '{table}', tag => '{name}')")


def branch(warehouse: Address, table: str, name: str, at: str) -> None:
    """Create a branch from a tag."""
    _sql(
        warehouse, f"CALL sys.create_branch(table => '{table}', branch => '{name}', tag => '{at}')"
    )


def _sql(warehouse: Address, statement: str) -> None:
    context = SQLContext()
    # Without an empty default database, a database named "default" appears in the warehouse.
    context.register_catalog("peer", _options(warehouse), "")
    context.sql(statement)


def _table(warehouse: Address, table: str) -> Any:
    return PaimonCatalog(_options(warehouse)).get_table(table)


def _options(warehouse: Address) -> dict[str, str]:
    return {"warehouse": warehouse} if isinstance(warehouse, str) else warehouse


def _create_table(name: str, spec: dict[str, Any]) -> str:
    columns = [f"`{field['name']}` {_sql_type(field['type'])}" for field in spec["fields"]]
    if spec.get("primary_keys"):
        columns.append(f"PRIMARY KEY ({', '.join(spec['primary_keys'])})")
    statement = f"CREATE TABLE {name} ({', '.join(columns)})"
    if spec.get("partition_keys"):
        statement += f" PARTITIONED BY ({', '.join(spec['partition_keys'])})"
    if spec.get("options"):
        options = (f"'{key}' = '{value}'" for key, value in spec["options"].items())
        statement += f" WITH ({', '.join(options)})"
    return statement


def _sql_type(kind: Any) -> str:
    """Return a type of a schema's JSON in this peer's SQL, without NOT NULL inside nested types."""
    if isinstance(kind, str):
        return kind.replace("WITH LOCAL TIME ZONE", "WITH TIME ZONE")
    text = kind["type"]
    suffix = " NOT NULL" if text.endswith(" NOT NULL") else ""
    if text.startswith("ARRAY"):
        return f"ARRAY<{_inner_type(kind['element'])}>{suffix}"
    if text.startswith("MAP"):
        return f"MAP({_inner_type(kind['key'])}, {_inner_type(kind['value'])}){suffix}"
    if text.startswith("ROW"):
        inner = (f"{field['name']} {_inner_type(field['type'])}" for field in kind["fields"])
        return f"STRUCT<{', '.join(inner)}>{suffix}"
    raise ValueError(f"pypaimon-rust's SQL has no type {text}")


def _inner_type(kind: Any) -> str:
    return _sql_type(kind).removesuffix(" NOT NULL")


def _arrow_schema(table: Any) -> pa.Schema:
    """Return the Arrow schema that this peer requires, from the table's newest schema file."""
    files = Path(table.location(), "schema").glob("schema-*")
    newest = max(files, key=lambda path: int(path.name.removeprefix("schema-")))
    return pa.schema(_arrow_fields(json.loads(newest.read_text(encoding="utf-8"))["fields"]))


def _arrow_fields(fields: list[dict[str, Any]]) -> list[pa.Field]:
    return [_arrow_field(field["name"], field["type"]) for field in fields]


def _arrow_field(name: str, kind: Any) -> pa.Field:
    text = kind if isinstance(kind, str) else kind["type"]
    return pa.field(name, _arrow_type(kind), nullable=not text.endswith(" NOT NULL"))


def _arrow_type(kind: Any) -> pa.DataType:
    if isinstance(kind, str):
        return _arrow_atom(kind.removesuffix(" NOT NULL"))
    if kind["type"].startswith("ARRAY"):
        return pa.list_(_arrow_field("element", kind["element"]))
    if kind["type"].startswith("MAP"):
        return pa.map_(_arrow_type(kind["key"]), _arrow_field("value", kind["value"]))
    if kind["type"].startswith("ROW"):
        return pa.struct(_arrow_fields(kind["fields"]))
    raise ValueError(f"pypaimon-rust cannot write the type {kind['type']}")


def _arrow_atom(text: str) -> pa.DataType:
    name, *numbers = re.findall(r"\w+", text.removesuffix(" WITH LOCAL TIME ZONE"))
    if name == "DECIMAL":
        return pa.decimal128(*(int(number) for number in numbers))
    if name == "TIMESTAMP":
        precision = int(numbers[0]) if numbers else 6
        unit = (
            "s" if precision == 0 else "ms" if precision <= 3 else "us" if precision <= 6 else "ns"
        )
        return pa.timestamp(unit, tz="UTC" if "LOCAL" in text else None)
    return _ATOMS[name]


if __name__ == "__main__":
    commands = (create, read, write, overwrite, delete, alter, tag, branch)
    serve({command.__name__: command for command in commands})
