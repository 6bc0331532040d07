"""Reads and writes with Paimon's Spark connector: JAR read|write WAREHOUSE ROWS REPEAT [TABLE...].

Runs in the environment of that connector (tests/support/peers/environments.py). ``read`` reads the
table ``db.t``. ``write`` writes the Parquet file ``ROWS`` into the tables ``db.TABLE_0``,
``db.TABLE_1``, and so on, one per run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path

from pyspark.sql import SparkSession

sys.path.append(str(Path(__file__).resolve().parent))
from spark_timing import compare


def main(jar: str, command: str, warehouse: str, rows: str, repeat: str, *tables: str) -> None:
    """Print the median (CPU seconds, wall-clock seconds) of each run as JSON."""
    settings = {
        "spark.driver.extraClassPath": jar,
        "spark.driver.memory": "4g",
        "spark.sql.extensions": "org.apache.paimon.spark.extensions.PaimonSparkSessionExtensions",
        "spark.sql.catalog.paimon": "org.apache.paimon.spark.SparkCatalog",
        "spark.sql.catalog.paimon.warehouse": warehouse,
        "spark.sql.catalog.paimon.cache-enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()

    def read() -> None:
        table = spark.table("paimon.db.t")
        table.write.format("noop").mode("overwrite").save()

    def write(targets: Iterator[str]) -> None:
        spark.read.parquet(rows).writeTo(next(targets)).append()

    runs: dict[str, Callable[[], None]] = {"read": read}
    if command == "write":
        runs = {
            table: partial(write, map(f"paimon.db.{table}_{{}}".format, count()))
            for table in tables
        }
    sys.stdout.write(json.dumps(compare(runs, int(repeat))))


if __name__ == "__main__":
    main(*sys.argv[1:])
