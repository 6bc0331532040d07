"""Measures the time that a file index adds to a write of pypaimon-rust.

Runs in the environment of that package: COLUMN.parquet TYPE INDEX REPEAT.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time

import pyarrow.parquet as pq
from pypaimon_rust.datafusion import PaimonCatalog, SQLContext


def time_write(source: str, column_type: str, options: str) -> float:
    """Return the CPU seconds of a write of one column."""
    batches = pq.read_table(source).to_batches()
    with tempfile.TemporaryDirectory() as folder:
        context = SQLContext()
        context.register_catalog("peer", {"warehouse": folder}, "")
        context.sql("CREATE SCHEMA IF NOT EXISTS peer.db")
        context.sql(f"CREATE TABLE peer.db.t (c {column_type}) WITH ('bucket' = '-1'{options})")
        builder = PaimonCatalog({"warehouse": folder}).get_table("db.t").new_batch_write_builder()
        writer, commit = builder.new_write(), builder.new_commit()
        start = time.process_time()
        for batch in batches:
            writer.write_arrow(batch)
        messages = writer.prepare_commit()
        seconds = time.process_time() - start
        commit.commit(messages)
        return seconds


def main(source: str, column_type: str, index: str, repeat: str) -> None:
    """Print the difference between the median times with and without the index."""
    options = ("", f", 'file-index.{index}.columns' = 'c'")
    runs = [
        [time_write(source, column_type, option) for option in options] for _ in range(int(repeat))
    ]
    without, with_index = (statistics.median(column) for column in zip(*runs, strict=True))
    sys.stdout.write(json.dumps(with_index - without))


if __name__ == "__main__":
    main(*sys.argv[1:])
