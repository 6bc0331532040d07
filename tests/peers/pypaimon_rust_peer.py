"""Reads and writes tables with pypaimon-rust; runs inside that package's own environment, by path.

dump WAREHOUSE db.t [--snapshot N]    one JSON object a row
write WAREHOUSE db.t                  a JSON document on stdin: fields, partition_keys, primary_keys, options, batches
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from pypaimon_rust.datafusion import PaimonCatalog, SQLContext  # type: ignore[import-not-found]

sys.path.append(str(Path(__file__).resolve().parents[1]))
from golden import arrow_table, canonical_rows

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


def dump(catalog: PaimonCatalog, name: str, snapshot: int | None) -> None:
    """Prints the rows of a table, or of one of its snapshots."""
    options = {} if snapshot is None else {"scan.snapshot-id": str(snapshot)}
    builder = catalog.get_table(name).new_read_builder(options)
    for batch in builder.new_read().read(builder.new_scan().plan().splits()):
        rows = pa.Table.from_batches([batch])
        for row in canonical_rows(rows):
            record = dict(zip(rows.column_names, row, strict=True))
            sys.stdout.write(json.dumps(record, ensure_ascii=False) + "\n")


def write(warehouse: str, name: str, spec: dict[str, Any]) -> None:
    """Creates the table when `fields` are given, and commits each batch of rows as a snapshot."""
    if "fields" in spec:
        context = SQLContext()
        # An empty default database: otherwise one named "default" appears in the warehouse.
        context.register_catalog("peer", {"warehouse": warehouse}, "")
        context.sql(f"CREATE SCHEMA IF NOT EXISTS peer.{name.partition('.')[0]}")
        context.sql(_create_table(f"peer.{name}", spec))
    for batch in spec["batches"]:
        table = PaimonCatalog({"warehouse": warehouse}).get_table(name)
        builder = table.new_batch_write_builder()
        writer, commit = builder.new_write(), builder.new_commit()
        for part in arrow_table(batch, _arrow_schema(table)).to_batches():
            writer.write_arrow(part)
        commit.commit(writer.prepare_commit())
        writer.close()
        commit.close()


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
    """The type of a schema's JSON as this peer's SQL writes it; inside nested types it knows no NOT NULL."""
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
    """The Arrow schema this peer insists on, from the table's newest schema file."""
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


def main() -> None:
    """Runs the command that the arguments name."""
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["dump", "write"])
    parser.add_argument("warehouse")
    parser.add_argument("table")
    parser.add_argument("--snapshot", type=int)
    arguments = parser.parse_args()
    if arguments.command == "dump":
        catalog = PaimonCatalog({"warehouse": arguments.warehouse})
        dump(catalog, arguments.table, arguments.snapshot)
    else:
        write(arguments.warehouse, arguments.table, json.load(sys.stdin))


if __name__ == "__main__":
    main()
