"""Reads or writes a table with pypaimon, in its environment, for ``request_counts.py``."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pypaimon import CatalogFactory

NAME = "db.t"
PARTITION = "2026-01"


def read_partition(table: Any) -> None:
    """Read one partition with a filter on the key."""
    builder = table.new_read_builder()
    predicates = builder.new_predicate_builder()
    condition = [predicates.equal("dt", PARTITION), predicates.less_than("id", 10)]
    builder = builder.with_filter(predicates.and_predicates(condition))
    rows = builder.new_read().to_arrow(builder.new_scan().plan().splits())
    assert rows.num_rows == 10, rows.num_rows


def read_all(table: Any) -> None:
    """Read the whole table."""
    builder = table.new_read_builder()
    assert builder.new_read().to_arrow(builder.new_scan().plan().splits()).num_rows


def plan(table: Any) -> None:
    """Find the files of the table."""
    assert table.new_read_builder().new_scan().plan().splits()


def write(table: Any) -> None:
    """Write and commit 1,000 rows."""
    rows = pa.table(
        {
            "dt": [PARTITION] * 1_000,
            "id": pa.array(range(1_000), pa.int64()),
            "amount": pa.array([1] * 1_000, pa.int32()),
        }
    )
    builder = table.new_batch_write_builder()
    writer, commit = builder.new_write(), builder.new_commit()
    writer.write_arrow(rows)
    commit.commit(writer.prepare_commit())
    writer.close()
    commit.close()


COMMANDS: dict[str, Callable[[Any], None]] = {
    "read_partition": read_partition,
    "read_all": read_all,
    "plan": plan,
    "write": write,
}


def main(command: str) -> None:
    """Run a command; see ``RequestMeter.measure_process`` for the lines that are exchanged."""
    arguments, run = json.loads(sys.stdin.readline()), COMMANDS[command]
    if command != "write":  # this imports its modules
        run(CatalogFactory.create({"warehouse": arguments["original"]}).get_table(NAME))
    options = {
        "warehouse": arguments["root"],
        "fs.s3.endpoint": arguments["endpoint_url"],
        "fs.s3.accessKeyId": arguments["key"],
        "fs.s3.accessKeySecret": arguments["secret"],
        "fs.s3.region": "us-east-1",
    }
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    start = time.monotonic()
    run(CatalogFactory.create(options).get_table(NAME))
    sys.stdout.write(f"{time.monotonic() - start}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
