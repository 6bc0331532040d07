"""Reads Iceberg tables with DuckDB, in its environment.

Started by path. Some metadata that DuckDB cannot read ends the process.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import duckdb

sys.path.append(str(Path(__file__).resolve().parents[2]))
from support.golden import canonical_rows
from support.peers.protocol import serve

Record = dict[str, Any]


def connect() -> duckdb.DuckDBPyConnection:
    """Return a connection with the extension for Iceberg, which requires that for Avro."""
    connection = duckdb.connect()
    for name in ("avro", "iceberg"):
        spec = importlib.util.find_spec(f"duckdb_extension_{name}")
        assert spec is not None
        assert spec.origin is not None
        [path] = Path(spec.origin).parent.rglob(f"{name}.duckdb_extension")
        connection.execute(f"LOAD '{path}'")
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def read(table: str, snapshot_id: int | None) -> list[Record]:
    """Return all rows of a snapshot, by default the current one."""
    rows = connection.sql(f"SELECT * FROM {_scan(table, snapshot_id)}").to_arrow_table()  # noqa: S608
    return [dict(zip(rows.column_names, row, strict=True)) for row in canonical_rows(rows)]


def find(table: str, key: str, conditions: list[str]) -> list[list[Any]]:
    """Return the values of column `key` in the rows that match each condition."""
    selects = (
        f"SELECT {number} AS n, {key} FROM {_scan(table, None)} WHERE {condition}"  # noqa: S608
        for number, condition in enumerate(conditions)
    )
    found: list[list[Any]] = [[] for _ in conditions]
    for number, value in connection.sql(" UNION ALL ".join(selects)).fetchall():
        found[number].append(value)
    return found


def _scan(table: str, snapshot_id: int | None) -> str:
    selector = "" if snapshot_id is None else f", snapshot_from_id => {snapshot_id}"
    return f"iceberg_scan('{table}'{selector})"


if __name__ == "__main__":
    connection = connect()
    serve({command.__name__: command for command in (read, find)})
