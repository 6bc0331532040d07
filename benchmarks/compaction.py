"""Compaction compared with an I/O baseline: reading and writing the same files with pyarrow only.

    python benchmarks/compaction.py [--rows 10000000] [--repeat 3]
        [--keys bigint,string,composite] [--no-peers] [--java java-1.4] [--tpch-scale 1]

Workload: a primary-key table of 4 buckets with all rows on the highest level, followed by ten
level-0 batches of 2 % updates and 0.2 % deletes each. The baseline of a full compaction reads its
input files and writes its output files. The baseline of a lookup compaction reads level 0
completely and the key columns of higher levels (all columns if the merge engine needs old values),
and writes its output files. Both use one thread and the settings of our writer: zstd 1, row groups
of 262,144 rows, dictionaries for columns with repeated values. Java Paimon compacts copies of the
same table in one warm process, one bucket after another like ours; it also commits. If
``tpchgen-cli`` is installed, the same runs on orders and lineitem of TPC-H (see tpch.py).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import typer
from java_paimon import JAVA_2_0, JavaPaimon, start_java
from measurement import console, medians, show
from tpch import create_tables, generate, is_available

from paimon_orch import Catalog
from paimon_orch.files.batch_sizes import DEFAULT_BATCH_SIZES
from paimon_orch.format.paths import TablePaths
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction import compact
from paimon_orch.steps.compaction.primary_key import PrimaryKeyCompactionUnit
from paimon_orch.table.table import Table
from paimon_orch.table.write.commit_message import CommitMessage, discard_written_files

BUCKETS, BATCHES, UPDATES, DELETES = 4, 10, 0.02, 0.002
VALUES = "amount BIGINT, price DOUBLE, status STRING, note STRING, day INT"
STATUSES = np.array(["PENDING", "PAID", "SENT", "RETURNED"])
KEYS = {
    "bigint": ("id BIGINT", ["id"]),
    "string": ("id STRING", ["id"]),
    "composite": ("id STRING, line INT", ["id", "line"]),
}
NO_AUTOMATIC_COMPACTION = {"num-sorted-run.compaction-trigger": "1000"}
MODES = {"full": {}, "lookup": {"deletion-vectors.enabled": "true"}}
AGGREGATES = {"amount": "sum", "price": "max", "status": "last_non_null_value"}
ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "partial-update": {"partial-update.remove-record-on-delete": "true"},
    "aggregation": {
        "fields.default-aggregate-function": "last_non_null_value",
        "aggregation.remove-record-on-delete": "true",
        **{f"fields.{name}.aggregate-function": function for name, function in AGGREGATES.items()},
    },
}


def make_key_columns(key_type: str, numbers: np.ndarray) -> dict[str, pa.Array]:
    """Return the key columns for row numbers.

    String keys have 18 characters; composite keys have 13 characters and a line number.
    """
    if key_type == "bigint":
        return {"id": pa.array(numbers)}
    text = pc.utf8_lpad(
        pa.array(numbers if key_type == "string" else numbers // 4).cast(pa.string()), 12, "0"
    )
    if key_type == "string":
        return {"id": pc.binary_join_element_wise("order-", text, "")}
    lines = pa.array((numbers % 4).astype(np.int32))
    return {"id": pc.binary_join_element_wise("o", text, ""), "line": lines}


def make_rows(key_type: str, numbers: np.ndarray, seed: int, deletes: int = 0) -> pa.Table:
    """Return a row for each number; the last ``deletes`` rows are delete rows."""
    random, count = np.random.default_rng(seed), len(numbers)
    row_kinds = np.repeat(np.array(["+U", "-D"]), [count - deletes, deletes])
    return pa.table(
        {
            **make_key_columns(key_type, numbers),
            "amount": random.integers(0, 1_000_000, count),
            "price": pa.array(random.random(count), mask=random.random(count) < 0.1),
            "status": STATUSES[random.integers(0, len(STATUSES), count)],
            "note": pc.binary_join_element_wise(
                "note", pa.array(random.integers(0, 1 << 40, count)).cast(pa.string()), " "
            ),
            "day": random.integers(0, 365, count).astype(np.int32),
            "kind": row_kinds,
        }
    )


def create_table(
    warehouse: Path,
    key_type: str,
    rows: int,
    options: dict[str, str],
    batches: int = BATCHES,
    updated_share: float = 1,
) -> Table:
    """Create the table of the workload; its batches are not compacted.

    The batches have the last ``updated_share`` of the keys.
    """
    columns, keys = KEYS[key_type]
    table = Catalog(str(warehouse)).create_table(
        "db.t",
        f"{columns}, {VALUES}",
        primary_key=keys,
        options={
            "bucket": str(BUCKETS),
            "write-buffer-size": "8 gb",
            **NO_AUTOMATIC_COMPACTION,
            **options,
        },
    )
    table.upsert(make_rows(key_type, np.arange(rows), 0), row_kind="kind")
    compact.compact(table, InProcessExecutor(), strategy="full")
    random = np.random.default_rng(1)
    for batch in range(batches):
        count = int(rows * (UPDATES + DELETES))
        first = int(rows * (1 - updated_share))
        numbers = np.unique(random.integers(first, int(rows * 1.02), count))  # 2 % are new keys
        table.upsert(make_rows(key_type, numbers, batch, int(rows * DELETES)), row_kind="kind")
    return table


def read_all(paths: Iterable[str], columns: Sequence[str] | None = None) -> None:
    """Read files batch by batch and discard the batches."""
    for path in paths:
        for _ in pq.ParquetFile(path).iter_batches(
            DEFAULT_BATCH_SIZES.batch_rows, columns=columns, use_threads=False
        ):
            pass


def rewrite_functions(paths: Iterable[str], target: Path) -> Iterator[Callable[[], None]]:
    """Yield for each file a function that writes its rows with the settings of our writer.

    The rows are read before, so calling the function only writes.
    """
    for path in paths:
        source = pq.ParquetFile(path)
        group = source.metadata.row_group(0)
        chunks = [group.column(index) for index in range(group.num_columns)]
        dictionary = [chunk.path_in_schema for chunk in chunks if chunk.has_dictionary_page]
        rows = source.read(use_threads=False)

        def write(rows: pa.Table = rows, dictionary: list[str] = dictionary) -> None:
            pq.write_table(
                rows,
                target,
                compression="zstd",
                compression_level=1,
                use_dictionary=dictionary,
                row_group_size=DEFAULT_BATCH_SIZES.row_group_rows,
                store_decimal_as_integer=True,
                store_schema=False,
            )

        yield write


class Compaction:
    """A planned compaction that can run repeatedly; its results are never committed."""

    def __init__(self, table: Table, strategy: compact.CompactionStrategy) -> None:
        self._table = table
        self._plan = compact.plan(table, compact.CompactRequest(strategy=strategy))
        self._units = [
            unit for unit in self._plan.units if isinstance(unit, PrimaryKeyCompactionUnit)
        ]
        self.rows = sum(unit.rows for unit in self._plan.units)

    def run(self) -> list[CommitMessage]:
        """Compact all buckets, one after another."""
        return [
            CommitMessage.decode(compact.run(self._plan.reader, unit)) for unit in self._plan.units
        ]

    def run_and_discard(self) -> None:
        """Compact all buckets and delete the written files."""
        discard_written_files(self._table.stores.reader(), self.run())

    def baseline(self, folder: Path) -> Callable[[], None]:
        """Return a function that only reads the input and writes the output of the compaction."""
        table = self._table
        lookup_columns: list[str] | None = None
        if table.load().schema.typed_options.merge_engine == "deduplicate":
            lookup_columns = [f"_KEY_{name}" for name in table.load().schema.trimmed_primary_keys]
        paths: TablePaths = table.paths
        messages = self.run()
        writes = list(
            rewrite_functions(
                [
                    paths.data_file(table.load().schema, entry.partition, entry.bucket, entry.file)
                    for message in messages
                    for entry in message.added
                    if entry.file.level != 0 and entry.file.file_name not in self._inputs()
                ],
                folder / "copy.parquet",
            )
        )
        discard_written_files(table.stores.reader(), messages)
        input_files = self._paths(higher_levels=False)
        lookup_files = self._paths(higher_levels=True)

        def run() -> None:
            read_all(input_files)
            read_all(lookup_files, lookup_columns)
            for write in writes:
                write()

        return run

    def _inputs(self) -> set[str]:
        return {file.file_name for unit in self._units for file in unit.task.files}

    def _paths(self, *, higher_levels: bool) -> list[str]:
        table = self._table
        return [
            table.paths.data_file(table.load().schema, *unit.partition_bucket, file)
            for unit in self._units
            for file in (unit.task.higher_level_files if higher_levels else unit.task.files)
        ]


def measure(table: Table, mode: str, repeat: int, peer: JavaPaimon | None) -> tuple[str, ...]:
    """Return a row of the result.

    Input rows, CPU seconds of the baseline and ours, their ratio, rows per second; with Java also
    its CPU seconds and our speedup.
    """
    warehouse = Path(table.paths.root).parents[1]
    strategy: compact.CompactionStrategy = "full" if mode == "full" else "minor"
    compaction = Compaction(table, strategy)
    baseline = compaction.baseline(warehouse.parent)
    seconds = medians({"baseline": baseline, "ours": compaction.run_and_discard}, repeat)
    columns = [
        f"{compaction.rows:,}",
        f"{seconds['baseline']:.2f}",
        f"{seconds['ours']:.2f}",
        f"{seconds['ours'] / seconds['baseline']:.2f}",
        f"{compaction.rows / seconds['ours'] / 1e6:.2f}",
    ]
    if peer is not None:
        java_seconds = peer.compact(warehouse, table.identifier, repeat, full=strategy == "full")
        columns += [f"{java_seconds:.2f}", f"{java_seconds / seconds['ours']:.1f}"]
    return tuple(columns)


def measure_tpch(scale: float, repeat: int, peer: JavaPaimon | None) -> list[tuple[str, ...]]:
    """Return a row of the result for each table and mode."""
    if not is_available():
        console.print("Skipped TPC-H: tpchgen-cli is not installed")
        return []
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        generated = generate(Path(folder), scale)
        for mode, mode_options in MODES.items():
            warehouse = Path(folder) / mode / "warehouse"
            options = {
                "bucket": str(BUCKETS),
                "write-buffer-size": "8 gb",
                **NO_AUTOMATIC_COMPACTION,
                **mode_options,
            }
            for name, table in create_tables(warehouse, generated, options, BATCHES).items():
                lines.append((f"{mode} TPC-H {name}", *measure(table, mode, repeat, peer)))
    return lines


def main(
    rows: Annotated[int, typer.Option(help="Rows on the highest level.")] = 10_000_000,
    repeat: Annotated[int, typer.Option(help="Number of runs; the median is printed.")] = 3,
    keys: Annotated[str, typer.Option(help="Key types, separated by commas.")] = ",".join(KEYS),
    engines: Annotated[str, typer.Option(help="Merge engines, separated by commas.")] = ",".join(
        ENGINES
    ),
    tpch_scale: Annotated[float, typer.Option(help="Scale of TPC-H; 0 skips it.")] = 1.0,
    peers: Annotated[bool, typer.Option(help="Compare with Java.")] = True,  # noqa: FBT002
    java: Annotated[str, typer.Option(help="Release of Java: java-1.4 or java-2.0.")] = JAVA_2_0,
) -> None:
    """Measure and print."""
    pa.set_cpu_count(1)
    peer = start_java(java) if peers else None
    lines = [] if tpch_scale == 0 else measure_tpch(tpch_scale, repeat, peer)
    for key_type, engine, mode in product(keys.split(","), engines.split(","), MODES):
        options = {"merge-engine": engine, **ENGINES[engine], **MODES[mode]}
        with tempfile.TemporaryDirectory() as folder:
            table = create_table(Path(folder) / "warehouse", key_type, rows, options)
            lines.append((f"{mode} {engine}, {key_type}", *measure(table, mode, repeat, peer)))
    if peer is not None:
        peer.close()
    columns = ("", "rows in", "baseline", "ours", "ratio", "Mrows/s", "Java", "speedup")
    show(
        f"Compaction of {rows:,} rows and {BATCHES} batches of updates, CPU seconds",
        columns[: len(lines[0])],
        lines,
    )


if __name__ == "__main__":
    typer.run(main)
