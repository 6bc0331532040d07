"""Compaction beside the least that it must read and write: the I/O floor of pyarrow alone.

    python benchmarks/compaction.py [--rows 10000000] [--repeat 3] [--keys bigint,string,composite] [--no-peers]
        [--tpch-scale 1]

Workload: a primary-key table of 4 buckets, all rows on the highest level, then ten level-0 batches of 2 % updates and
0.2 % deletes each. The floor of a full compaction reads its input files and writes its output files; the floor of a
lookup compaction reads level 0 wholly and the key columns above (all columns where the engine merges old values), and
writes its output files. Both use the settings of our writer: zstd 1, row groups of 262,144 rows, a dictionary for
columns that repeat themselves. One thread. Java Paimon compacts copies of the same table in one warm process, one
bucket after another as we do here; it also commits. The same for TPC-H's orders and lineitem, if ``tpchgen-cli`` is
installed (see tpch.py).
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
from java_side import Java, java
from measure import console, medians, show
from tpch import generate, is_available, make_tables

from paimon_orch import Catalog
from paimon_orch.files.data_file_reader import BATCH_ROWS
from paimon_orch.files.parquet.parquet import ROW_GROUP_ROWS
from paimon_orch.format.paths import TablePaths
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction import compact
from paimon_orch.steps.compaction.primary_key import PrimaryKeyCompactionUnit
from paimon_orch.table.table import Table
from paimon_orch.table.write.commit_message import CommitMessage, discard_written_files

BUCKETS, BATCHES, UPDATES, DELETES = 4, 10, 0.02, 0.002
VALUES = "amount BIGINT, price DOUBLE, status STRING, note STRING, day INT"
STATUS = np.array(["PENDING", "PAID", "SENT", "RETURNED"])
KEYS = {
    "bigint": ("id BIGINT", ["id"]),
    "string": ("id STRING", ["id"]),
    "composite": ("id STRING, line INT", ["id", "line"]),
}
NO_MINOR = {"num-sorted-run.compaction-trigger": "1000"}
MODES = {"full": {}, "lookup": {"deletion-vectors.enabled": "true"}}
AGGREGATES = {"amount": "sum", "price": "max", "status": "last_non_null_value"}
ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "partial-update": {"partial-update.remove-record-on-delete": "true"},
    "aggregation": {
        "fields.default-aggregate-function": "last_non_null_value",
        "aggregation.remove-record-on-delete": "true",
        **{f"fields.{name}.aggregate-function": kind for name, kind in AGGREGATES.items()},
    },
}


def key_columns(kind: str, numbers: np.ndarray) -> dict[str, pa.Array]:
    """Return the key columns of some row numbers: 18 characters of text, or 13 and a line number."""
    if kind == "bigint":
        return {"id": pa.array(numbers)}
    text = pc.utf8_lpad(
        pa.array(numbers if kind == "string" else numbers // 4).cast(pa.string()), 12, "0"
    )
    if kind == "string":
        return {"id": pc.binary_join_element_wise("order-", text, "")}
    lines = pa.array((numbers % 4).astype(np.int32))
    return {"id": pc.binary_join_element_wise("o", text, ""), "line": lines}


def make_rows(kind: str, numbers: np.ndarray, seed: int, deletes: int = 0) -> pa.Table:
    """Return a row for each number; the last ``deletes`` of them delete."""
    random, count = np.random.default_rng(seed), len(numbers)
    kinds = np.repeat(np.array(["+U", "-D"]), [count - deletes, deletes])
    return pa.table(
        {
            **key_columns(kind, numbers),
            "amount": random.integers(0, 1_000_000, count),
            "price": pa.array(random.random(count), mask=random.random(count) < 0.1),
            "status": STATUS[random.integers(0, len(STATUS), count)],
            "note": pc.binary_join_element_wise(
                "note", pa.array(random.integers(0, 1 << 40, count)).cast(pa.string()), " "
            ),
            "day": random.integers(0, 365, count).astype(np.int32),
            "kind": kinds,
        }
    )


def make_table(warehouse: Path, kind: str, rows: int, options: dict[str, str]) -> Table:
    """Return the table of the workload, with nothing compacted of its ten batches."""
    columns, keys = KEYS[kind]
    table = Catalog(str(warehouse)).create_table(
        "db.t",
        f"{columns}, {VALUES}",
        primary_key=keys,
        options={"bucket": str(BUCKETS), "write-buffer-size": "8 gb", **NO_MINOR, **options},
    )
    table.upsert(make_rows(kind, np.arange(rows), 0), row_kind="kind")
    compact.compact(table, InProcessExecutor(), strategy="full")
    random = np.random.default_rng(1)
    for batch in range(BATCHES):
        count = int(rows * (UPDATES + DELETES))
        chosen = random.integers(0, int(rows * 1.02), count)  # a few of them are new
        table.upsert(
            make_rows(kind, np.unique(chosen), batch, int(rows * DELETES)), row_kind="kind"
        )
    return table


def read_all(paths: Iterable[str], columns: Sequence[str] | None = None) -> None:
    """Read files batch by batch and forget them."""
    for path in paths:
        for _ in pq.ParquetFile(path).iter_batches(BATCH_ROWS, columns=columns, use_threads=False):
            pass


def copies(paths: Iterable[str], target: Path) -> Iterator[Callable[[], None]]:
    """Yield for each file what writes its rows again as our writer does; reading them is done before."""
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
                row_group_size=ROW_GROUP_ROWS,
                store_decimal_as_integer=True,
                store_schema=False,
            )

        yield write


class Compaction:
    """One compaction, planned and ready to run again and again; nothing of it is committed."""

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

    def run_and_forget(self) -> None:
        """Compact and remove the results."""
        discard_written_files(self._table.stores.reader(), self.run())

    def floor(self, warehouse: Path) -> Callable[[], None]:
        """Return what does the reading and writing alone."""
        table = self._table
        looked_up: list[str] | None = None
        if table.schema.typed_options.merge_engine == "deduplicate":
            looked_up = [f"_KEY_{name}" for name in table.schema.trimmed_primary_keys]
        paths: TablePaths = table.paths
        messages = self.run()
        writes = list(
            copies(
                [
                    paths.data_file(table.schema, entry.partition, entry.bucket, entry.file)
                    for message in messages
                    for entry in message.added
                    if entry.file.level != 0 and entry.file.file_name not in self._inputs()
                ],
                warehouse / "copy.parquet",
            )
        )
        discard_written_files(table.stores.reader(), messages)
        whole, above = self._paths(above=False), self._paths(above=True)

        def run() -> None:
            read_all(whole)
            read_all(above, looked_up)
            for write in writes:
                write()

        return run

    def _inputs(self) -> set[str]:
        return {file.file_name for unit in self._units for file in unit.task.files}

    def _paths(self, *, above: bool) -> list[str]:
        table = self._table
        return [
            table.paths.data_file(table.schema, unit.task.partition, unit.bucket, file)
            for unit in self._units
            for file in (unit.task.higher_level_files if above else unit.task.files)
        ]


def measure(table: Table, mode: str, repeat: int, peer: Java | None) -> tuple[str, ...]:
    """Return a line of the result: rows in, CPU seconds of the floor and ours, their ratio, our speed beside Java."""
    warehouse = Path(table.paths.root).parents[1]
    strategy: compact.CompactionStrategy = "full" if mode == "full" else "minor"
    work = Compaction(table, strategy)
    floor = work.floor(warehouse.parent)
    seconds = medians({"floor": floor, "ours": work.run_and_forget}, repeat)
    columns = [
        f"{work.rows:,}",
        f"{seconds['floor']:.2f}",
        f"{seconds['ours']:.2f}",
        f"{seconds['ours'] / seconds['floor']:.2f}",
        f"{work.rows / seconds['ours'] / 1e6:.2f}",
    ]
    if peer is not None:
        theirs = peer.compact(warehouse, table.identifier, repeat, full=strategy == "full")
        columns += [f"{theirs:.2f}", f"{theirs / seconds['ours']:.1f}"]
    return tuple(columns)


def measure_tpch(scale: float, repeat: int, peer: Java | None) -> list[tuple[str, ...]]:
    """Return a line for each table and mode."""
    if not is_available():
        console.print("TPC-H is left out: tpchgen-cli is not installed")
        return []
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        generated = generate(Path(folder), scale)
        for mode, more in MODES.items():
            warehouse = Path(folder) / mode / "warehouse"
            options = {"bucket": str(BUCKETS), "write-buffer-size": "8 gb", **NO_MINOR, **more}
            for name, table in make_tables(warehouse, generated, options, BATCHES).items():
                lines.append((f"{mode} TPC-H {name}", *measure(table, mode, repeat, peer)))
    return lines


def main(
    rows: Annotated[int, typer.Option(help="Rows on the highest level.")] = 10_000_000,
    repeat: Annotated[int, typer.Option(help="Runs, of which the median counts.")] = 3,
    keys: Annotated[str, typer.Option(help="Which keys, with commas between.")] = ",".join(KEYS),
    engines: Annotated[str, typer.Option(help="Which merge engines.")] = ",".join(ENGINES),
    tpch_scale: Annotated[float, typer.Option(help="Scale of TPC-H; 0 leaves it out.")] = 1.0,
    peers: Annotated[bool, typer.Option(help="Also run Java.")] = True,  # noqa: FBT002
) -> None:
    """Measure and print."""
    pa.set_cpu_count(1)
    peer = java() if peers else None
    lines = [] if tpch_scale == 0 else measure_tpch(tpch_scale, repeat, peer)
    for kind, engine, mode in product(keys.split(","), engines.split(","), MODES):
        options = {"merge-engine": engine, **ENGINES[engine], **MODES[mode]}
        with tempfile.TemporaryDirectory() as folder:
            table = make_table(Path(folder) / "warehouse", kind, rows, options)
            lines.append((f"{mode} {engine}, {kind}", *measure(table, mode, repeat, peer)))
    if peer is not None:
        peer.close()
    columns = ("", "rows in", "floor", "ours", "ratio", "Mrows/s", "Java", "beside Java")
    show(
        f"Compaction of {rows:,} rows and {BATCHES} batches, CPU seconds",
        columns[: len(lines[0])],
        lines,
    )


if __name__ == "__main__":
    typer.run(main)
