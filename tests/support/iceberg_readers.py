"""Readers of Iceberg tables that do not know Paimon: pyiceberg, DuckDB and Spark.

Rows are JSON records in the conventions of the golden README.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import (
    BooleanExpression,
    EqualTo,
    GreaterThan,
    IsNaN,
    IsNull,
    LessThan,
    Reference,
)
from pyiceberg.table import StaticTable
from support.golden import canonical_rows
from support.peers.environments import ICEBERG_DUCKDB, ICEBERG_SPARK, peer_start
from support.peers.protocol import PeerProcess

Record = dict[str, Any]

PYICEBERG, PYICEBERG_CATALOG = "pyiceberg", "pyiceberg catalog"
DUCKDB, SPARK = "duckdb", "spark"
IS_NULL = "IS NULL"
READERS = (PYICEBERG, PYICEBERG_CATALOG, DUCKDB, SPARK)


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A condition on a column: `IS NULL`, or `=`, `<` or `>` and a value."""

    column: str
    operator: str
    type: str
    """The type of the column, as Paimon's text."""

    value: Any = None


class IcebergReader(Protocol):
    """An implementation of Iceberg.

    A table is a directory with `metadata/version-hint.text`, or a metadata file.
    """

    def read_rows(
        self, table: Path, snapshot_id: int | None = None, *, tag: str | None = None
    ) -> list[Record]:
        """Return the rows of a snapshot or a tag, by default those of the current snapshot."""

    def find_keys(self, table: Path, key: str, conditions: Sequence[Condition]) -> list[list[Any]]:
        """Return the values of column `key` in the rows that match each condition.

        The reader may use partitions and column bounds to skip files.
        """

    def close(self) -> None:
        """End the process of the reader."""


def open_reader(name: str) -> IcebergReader:
    """Return a reader; raises `PeerUnavailableError` if it cannot run on this machine."""
    if name == PYICEBERG:
        return PyIcebergReader()
    if name == PYICEBERG_CATALOG:
        return CatalogReader()
    return DuckDbReader() if name == DUCKDB else SparkReader()


def find_metadata_file(table: Path) -> Path:
    """Return the metadata file that the hint of a table names."""
    hint = (table / "metadata" / "version-hint.text").read_text(encoding="utf-8")
    return table / "metadata" / f"v{hint}.metadata.json"


def load_metadata(table: Path) -> dict[str, Any]:
    """Return the metadata that the hint of a table names."""
    metadata: dict[str, Any] = json.loads(find_metadata_file(table).read_text(encoding="utf-8"))
    return metadata


class PyIcebergReader:
    """Opens metadata files with pyiceberg."""

    def read_rows(
        self, table: Path, snapshot_id: int | None = None, *, tag: str | None = None
    ) -> list[Record]:
        opened = self.open(table)
        if tag is not None:
            snapshot = opened.snapshot_by_name(tag)
            assert snapshot is not None, tag
            snapshot_id = snapshot.snapshot_id
        rows = opened.scan(snapshot_id=snapshot_id).to_arrow()
        return [dict(zip(rows.column_names, row, strict=True)) for row in canonical_rows(rows)]

    def find_keys(self, table: Path, key: str, conditions: Sequence[Condition]) -> list[list[Any]]:
        opened = self.open(table)
        return [
            opened.scan(row_filter=_to_expression(condition), selected_fields=(key,))
            .to_arrow()[key]
            .to_pylist()
            for condition in conditions
        ]

    def open(self, table: Path) -> Any:
        """Return pyiceberg's table."""
        return StaticTable.from_metadata(str(table))

    def close(self) -> None:
        return


class CatalogReader(PyIcebergReader):
    """Registers metadata files in a catalog of pyiceberg, which is a database in memory."""

    def __init__(self) -> None:
        self._catalog = SqlCatalog("test", uri="sqlite:///:memory:", warehouse="/nowhere")
        self._catalog.create_namespace("db")
        self._count = 0

    def open(self, table: Path) -> Any:
        """Register the current metadata file under a new name."""
        path = find_metadata_file(table) if table.is_dir() else table
        self._count += 1
        self._catalog.register_table(("db", f"t{self._count}"), str(path))
        return self._catalog.load_table(("db", f"t{self._count}"))

    def close(self) -> None:
        self._catalog.close()


class DuckDbReader:
    """Reads with DuckDB in another process, which restarts after input that ends it."""

    def __init__(self) -> None:
        start = peer_start(ICEBERG_DUCKDB)
        self._process = PeerProcess(start.command, start.environment)

    def read_rows(
        self, table: Path, snapshot_id: int | None = None, *, tag: str | None = None
    ) -> list[Record]:
        if tag is not None:  # iceberg_scan selects snapshots by id or time only
            snapshot_id = load_metadata(table)["refs"][tag]["snapshot-id"]
        records, _ = self._process.ask("read", table=str(table), snapshot_id=snapshot_id)
        assert isinstance(records, list)
        return records

    def find_keys(self, table: Path, key: str, conditions: Sequence[Condition]) -> list[list[Any]]:
        texts = [_to_sql(condition, '"', _DUCKDB_TYPES) for condition in conditions]
        keys, _ = self._process.ask("find", table=str(table), key=key, conditions=texts)
        assert isinstance(keys, list)
        return keys

    def close(self) -> None:
        self._process.close()


class SparkReader:
    """Reads with a Spark session in another process."""

    def __init__(self) -> None:
        start = peer_start(ICEBERG_SPARK)
        self._process = PeerProcess(start.command, start.environment)

    def read_rows(
        self, table: Path, snapshot_id: int | None = None, *, tag: str | None = None
    ) -> list[Record]:
        return self.read_columns(table, ["*"], tag if snapshot_id is None else str(snapshot_id))

    def read_columns(
        self, table: Path, columns: Sequence[str], version: str | None = None
    ) -> list[Record]:
        """Return columns, which may be metadata columns such as `_row_id`."""
        arguments = {"table": str(table), "version": version, "columns": list(columns)}
        records, _ = self._process.ask("read", **arguments)
        assert isinstance(records, list)
        return records

    def read_from_catalog(
        self, name: str, snapshot_id: int | None = None, **settings: str
    ) -> list[Record]:
        """Return the rows of a table by its name in the catalog with these settings."""
        arguments = {"settings": settings, "table": name, "version": snapshot_id}
        records, _ = self._process.ask("read_from_catalog", **arguments)
        assert isinstance(records, list)
        return records

    def find_keys(self, table: Path, key: str, conditions: Sequence[Condition]) -> list[list[Any]]:
        texts = [_to_sql(condition, "`", _SPARK_TYPES) for condition in conditions]
        keys, _ = self._process.ask("find", table=str(table), key=key, conditions=texts)
        assert isinstance(keys, list)
        return keys

    def close(self) -> None:
        self._process.close()


_DUCKDB_TYPES = {"TIMESTAMP": "TIMESTAMP", "TIMESTAMP_LTZ": "TIMESTAMPTZ"}
_SPARK_TYPES = {"TIMESTAMP": "TIMESTAMP_NTZ", "TIMESTAMP_LTZ": "TIMESTAMP"}


def _type_root(condition: Condition) -> str:
    """Return the name of the type without parameters."""
    match = re.match(r"\w+", condition.type)
    assert match is not None, condition
    return "TIMESTAMP_LTZ" if "LOCAL TIME ZONE" in condition.type else match[0]


def _to_sql(condition: Condition, quote: str, timestamps: dict[str, str]) -> str:
    root = _type_root(condition)
    left = f"{quote}{condition.column}{quote} {condition.operator}"
    if condition.operator == IS_NULL:
        return left
    if root in ("BINARY", "VARBINARY", "BYTES"):
        return f"{left} unhex('{condition.value}')"
    name = timestamps.get(root, root if root in ("CHAR", "VARCHAR") else condition.type)
    if root in ("CHAR", "VARCHAR", "STRING"):
        name = "STRING"
    text = str(condition.value).replace("'", "''")
    return f"{left} CAST('{text}' AS {name})"


def _to_expression(condition: Condition) -> BooleanExpression:
    root, value = _type_root(condition), condition.value
    if condition.operator == IS_NULL:
        return IsNull(term=Reference(condition.column))
    if root in ("FLOAT", "DOUBLE"):
        if value == "NaN":
            assert condition.operator == "="
            return IsNaN(term=Reference(condition.column))
        value = float(value)
        if root == "FLOAT":
            # pyiceberg compares it with the column's value as a 64-bit number.
            value = float(pa.scalar(value, pa.float32()).as_py())
    elif root in ("BINARY", "VARBINARY", "BYTES"):
        value = bytes.fromhex(value)
    elif root.startswith("TIMESTAMP"):
        digits = value.removesuffix("Z")[: len("2024-01-01T00:00:00.000000")]
        value = f"{digits}+00:00" if root == "TIMESTAMP_LTZ" else digits
    kinds = {"=": EqualTo, "<": LessThan, ">": GreaterThan}
    expression: BooleanExpression = kinds[condition.operator](condition.column, value)
    return expression
