"""Reads Iceberg tables with Spark and Iceberg's runtime, in a separate environment.

Started by path. The argument is the jar of the runtime.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

sys.path.append(str(Path(__file__).resolve().parents[2]))
from support.golden import canonical_rows
from support.peers.protocol import serve

Record = dict[str, Any]


def session(jar: str) -> SparkSession:
    """Return the session of this process."""
    settings = {
        "spark.driver.extraClassPath": jar,
        "spark.driver.memory": "1g",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.ui.enabled": "false",
    }
    builder = SparkSession.builder.master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def read(table: str, version: str | None, columns: list[str]) -> list[Record]:
    """Return columns of a snapshot or tag, by default of the current snapshot."""
    return _records(_load(table, version).select(*columns))


def read_from_catalog(
    settings: dict[str, str], table: str, version: int | None = None
) -> list[Record]:
    """Return the rows of the table `db.t` in a catalog, by default of the current snapshot."""
    name = f"catalog_{abs(hash(tuple(sorted(settings.items()))))}"
    catalog = f"spark.sql.catalog.{name}"
    spark.conf.set(catalog, "org.apache.iceberg.spark.SparkCatalog")
    for key, value in {"cache-enabled": "false", **settings}.items():
        spark.conf.set(f"{catalog}.{key}", value)
    reader = spark.read
    if version is not None:
        reader = reader.option("versionAsOf", str(version))
    return _records(reader.table(f"{name}.{table}"))


def find(table: str, key: str, conditions: list[str]) -> list[list[Any]]:
    """Return the values of column `key` in the rows that match each condition."""
    _load(table, None).createOrReplaceTempView("found")
    selects = (
        f"SELECT {number} AS n, {key} FROM found WHERE {condition}"  # noqa: S608
        for number, condition in enumerate(conditions)
    )
    found: list[list[Any]] = [[] for _ in conditions]
    for number, value in spark.sql(" UNION ALL ".join(selects)).collect():
        found[number].append(value)
    return found


def _load(table: str, version: str | None) -> DataFrame:
    reader = spark.read.format("iceberg")
    if version is not None:
        reader = reader.option("versionAsOf", version)
    return reader.load(table)


def _records(frame: DataFrame) -> list[Record]:
    rows = frame.toArrow()
    return [dict(zip(rows.column_names, row, strict=True)) for row in canonical_rows(rows)]


if __name__ == "__main__":
    spark = session(*sys.argv[1:])
    serve({command.__name__: command for command in (read, read_from_catalog, find)})
