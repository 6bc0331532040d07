"""What a file index adds to a write of pypaimon-rust: COLUMN.parquet TYPE INDEX REPEAT, in its own environment."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time

import pyarrow.parquet as pq
from pypaimon_rust.datafusion import PaimonCatalog, SQLContext


def seconds(source: str, kind: str, options: str) -> float:
    """Return the CPU seconds of a write of one column."""
    batches = pq.read_table(source).to_batches()
    with tempfile.TemporaryDirectory() as folder:
        context = SQLContext()
        context.register_catalog("peer", {"warehouse": folder}, "")
        context.sql("CREATE SCHEMA IF NOT EXISTS peer.db")
        context.sql(f"CREATE TABLE peer.db.t (c {kind}) WITH ('bucket' = '-1'{options})")
        builder = PaimonCatalog({"warehouse": folder}).get_table("db.t").new_batch_write_builder()
        writer, commit = builder.new_write(), builder.new_commit()
        start = time.process_time()
        for batch in batches:
            writer.write_arrow(batch)
        messages = writer.prepare_commit()
        found = time.process_time() - start
        commit.commit(messages)
        return found


def main(source: str, kind: str, index: str, repeat: str) -> None:
    """Print the difference of the medians with an index and without."""
    options = ("", f", 'file-index.{index}.columns' = 'c'")
    runs = [[seconds(source, kind, option) for option in options] for _ in range(int(repeat))]
    without, with_index = (statistics.median(column) for column in zip(*runs, strict=True))
    sys.stdout.write(json.dumps(with_index - without))


if __name__ == "__main__":
    main(*sys.argv[1:])
