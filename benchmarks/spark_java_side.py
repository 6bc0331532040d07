"""Reads and writes with Paimon's own connector, in the environment of tests/peers: JAR read|write WAREHOUSE ROWS REPEAT.

``ROWS`` is a Parquet file to write into copies of ``db.t``, which the warehouse has as ``db.w0``, ``db.w1`` and so on.
"""

from __future__ import annotations

import json
import sys
from itertools import count
from pathlib import Path

from pyspark.sql import SparkSession

sys.path.append(str(Path(__file__).resolve().parent))
from spark_clock import compare


def main(jar: str, command: str, warehouse: str, rows: str, repeat: str) -> None:
    """Print the median (CPU seconds, seconds) as JSON."""
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
    numbers = count()

    def read() -> None:
        table = spark.table("paimon.db.t")
        table.write.format("noop").mode("overwrite").save()

    def write() -> None:
        target = f"paimon.db.w{next(numbers)}"
        spark.read.parquet(rows).writeTo(target).append()

    found = compare({"java": read if command == "read" else write}, int(repeat))
    sys.stdout.write(json.dumps(found["java"]))


if __name__ == "__main__":
    main(*sys.argv[1:])
