"""Reads and writes tables with SQL and Paimon's connector for Spark, in a separate environment.

Started by path. The arguments are the jar of the connector and optionally Spark's master, by default
one core. Commands: see `peers`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

sys.path.append(str(Path(__file__).resolve().parents[2]))
from support.golden import arrow_table, canonical_rows
from support.peers.protocol import serve

Record = dict[str, Any]


def session(jar: str, master: str = "local[1]") -> SparkSession:
    """Return the session of this process."""
    settings = {
        "spark.driver.extraClassPath": jar,
        "spark.sql.extensions": "org.apache.paimon.spark.extensions.PaimonSparkSessionExtensions",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.sources.partitionOverwriteMode": "dynamic",
        "spark.ui.enabled": "false",
    }
    builder = SparkSession.builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def create(warehouse: str, table: str, spec: Record) -> None:
    """Create a table, and its database if it does not exist."""
    name = _named(warehouse, table)
    spark.sql(f"CREATE DATABASE IF NOT EXISTS {name.rpartition('.')[0]}")
    columns = ", ".join(f"`{f['name']}` {_sql_type(f['type'])}" for f in spec["fields"])
    options = dict(spec["options"])
    if spec["primary_keys"]:
        options["primary-key"] = ",".join(spec["primary_keys"])
    statement = f"CREATE TABLE {name} ({columns})"
    if spec["partition_keys"]:
        statement += f" PARTITIONED BY ({', '.join(spec['partition_keys'])})"
    properties = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
    spark.sql(f"{statement} TBLPROPERTIES ({properties})")


def read(warehouse: str, table: str, options: dict[str, str]) -> list[Record]:
    """Return all rows."""
    rows = spark.read.options(**options).table(_named(warehouse, table)).toArrow()
    return [dict(zip(rows.column_names, row, strict=True)) for row in canonical_rows(rows)]


def write(warehouse: str, table: str, rows: list[Record]) -> None:
    """Commit rows."""
    _frame(warehouse, table, rows).writeTo(_named(warehouse, table)).append()


def overwrite(warehouse: str, table: str, rows: list[Record]) -> None:
    """Replace the partitions that receive rows."""
    _frame(warehouse, table, rows).writeTo(_named(warehouse, table)).overwritePartitions()


def delete(warehouse: str, table: str, rows: list[Record]) -> None:
    """Delete the rows that have one of the given values in column k."""
    keys = ", ".join(str(row["k"]) for row in rows)
    spark.sql(f"DELETE FROM {_named(warehouse, table)} WHERE k IN ({keys})")  # noqa: S608 - numbers


def compact(warehouse: str, table: str, *, full: bool) -> None:
    """Compact a table; release 0.9 supports only the full strategy."""
    strategy = "" if full else ", compact_strategy => 'minor'"
    _call(warehouse, f"compact(table => '{table}'{strategy})")


def alter(warehouse: str, table: str, changes: list[list[Any]]) -> None:
    """Change the schema."""
    for kind, name, *argument in changes:
        if kind == "add":
            change = f"ADD COLUMN {name} {_sql_type(argument[0])}"
        elif kind == "drop":
            change = f"DROP COLUMN {name}"
        elif kind == "rename":
            change = f"RENAME COLUMN {name} TO {argument[0]}"
        else:
            change = f"ALTER COLUMN {name} TYPE {_sql_type(argument[0])}"
        spark.sql(f"ALTER TABLE {_named(warehouse, table)} {change}")


def tag(warehouse: str, table: str, name: str) -> None:
    """Tag the newest snapshot."""
    _call(warehouse, f"create_tag(table => '{table}', tag => '{name}')")


def branch(warehouse: str, table: str, name: str, at: str) -> None:
    """Create a branch from a tag."""
    _call(warehouse, f"create_branch(table => '{table}', branch => '{name}', tag => '{at}')")


def _call(warehouse: str, procedure: str) -> None:
    spark.sql(f"CALL {_catalog(warehouse)}.sys.{procedure}").collect()


def _frame(warehouse: str, table: str, rows: list[Record]) -> DataFrame:
    schema = to_arrow_schema(spark.table(_named(warehouse, table)).schema)
    return spark.createDataFrame(arrow_table(rows, schema))


def _named(warehouse: str, table: str) -> str:
    database, _, name = table.partition(".")
    return f"{_catalog(warehouse)}.{database}.`{name}`"


def _catalog(warehouse: str) -> str:
    """Return the catalog of a warehouse, uncached because other processes change the tables."""
    if warehouse not in catalogs:
        catalogs[warehouse] = f"w{len(catalogs)}"
        prefix = f"spark.sql.catalog.{catalogs[warehouse]}"
        spark.conf.set(prefix, "org.apache.paimon.spark.SparkCatalog")
        spark.conf.set(f"{prefix}.warehouse", warehouse)
        spark.conf.set(f"{prefix}.cache-enabled", "false")
    return catalogs[warehouse]


def _sql_type(kind: Any) -> str:
    """Return a type of a schema's JSON in Spark SQL."""
    if isinstance(kind, str):
        text = kind
    elif kind["type"].startswith("ARRAY"):
        text = kind["type"].replace("ARRAY", f"ARRAY<{_inner(kind['element'])}>")
    elif kind["type"].startswith("MAP"):
        inner = f"{_inner(kind['key'])}, {_inner(kind['value'])}"
        text = kind["type"].replace("MAP", f"MAP<{inner}>")
    else:
        fields = (f"{field['name']}: {_inner(field['type'])}" for field in kind["fields"])
        text = kind["type"].replace("ROW", f"STRUCT<{', '.join(fields)}>")
    if text.startswith("TIMESTAMP"):
        null = " NOT NULL" if text.endswith(" NOT NULL") else ""
        return ("TIMESTAMP" if "LOCAL" in text else "TIMESTAMP_NTZ") + null
    return re.sub(r"(VAR)?BINARY\(\d+\)|BYTES", "BINARY", text)


def _inner(kind: Any) -> str:
    return _sql_type(kind).removesuffix(" NOT NULL")


if __name__ == "__main__":
    spark = session(*sys.argv[1:])
    catalogs: dict[str, str] = {}
    commands = (create, read, write, overwrite, delete, compact, alter, tag, branch)
    serve({command.__name__: command for command in commands})
