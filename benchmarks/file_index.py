"""File indexes: speed of building and evaluating them, and the reads that they save.

    python benchmarks/file_index.py [--rows 1000000] [--files 10000] [--repeat 3] [--no-peers]

Goals: building bitmaps at 15 million values per second with few distinct strings and 5 million with
100,000 distinct numbers, range bitmaps at 5 million, bloom filters at 8 million for numbers and 4
million for 16-byte strings, and none slower than pypaimon-rust; evaluating 10,000 embedded
indexes in less than 1.5 times the time to decode their manifest; a filter that matches one row in a
thousand reads a fraction of the table; rewriting an index reads at most 1.05 times the size of the
indexed columns.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Annotated, Self, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from measurement import HERE, console, medians, run_json, show
from support.peers.environments import PeerUnavailableError, peer_start

from paimon_orch import Catalog
from paimon_orch.format.file_index.build import FileIndexBuilder
from paimon_orch.format.file_index.index_options import IndexSpec, parse_index_specs
from paimon_orch.format.manifest.columnar_manifest import open_manifest
from paimon_orch.format.manifest.manifest_entry import (
    DataFileMeta,
    FileKind,
    ManifestEntry,
    encode_manifest,
)
from paimon_orch.format.options.core_options import FILE_INDEX_READ_ENABLED
from paimon_orch.format.row.simple_stats import ColumnStats, SimpleStats
from paimon_orch.format.types.data_types import Field, parse_columns
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.maintenance.rewrite_file_index import rewrite_file_index
from paimon_orch.storage import LocalFileIO
from paimon_orch.table.scan.file_pruner import FilePruner
from paimon_orch.table.schema_change.schema_changes import SetOption
from paimon_orch.table.table import Table
from paimon_orch.table.table_state import build_table_state


class CountingIO(LocalFileIO):
    """A local file system that counts the bytes read from data and index files."""

    count = 0

    def open_input(self, path: str, size: int | None = None) -> IO[bytes]:
        """Open a file whose reads are counted."""
        return cast("IO[bytes]", _CountingFile(super().open_input(path, size), self))


class _CountingFile:
    def __init__(self, file: IO[bytes], owner: CountingIO) -> None:
        self._file, self._owner = file, owner

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        if "/bucket-" in self._file.name:
            self._owner.count += len(data)
        return data

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def make_columns(rows: int) -> dict[str, tuple[str, pa.Array]]:
    """Return the columns to index, by description: their type and values."""
    random = np.random.default_rng(7)
    statuses = np.array([f"STATUS-{number}" for number in range(12)])
    unique = random.integers(0, 2**62, rows)
    return {
        "12 strings": ("STRING", pa.array(statuses[random.integers(0, 12, rows)])),
        "100,000 numbers": ("INT", pa.array(random.integers(0, 100_000, rows).astype(np.int32))),
        "unique bigints": ("BIGINT", pa.array(unique)),
        "unique 16-byte strings": ("STRING", pa.array([f"{n:016x}" for n in unique.tolist()])),
    }


BUILDS = [
    ("12 strings", "bitmap", 15), ("100,000 numbers", "bitmap", 5), ("12 strings", "range-bitmap", 5),
    ("100,000 numbers", "range-bitmap", 5), ("unique bigints", "range-bitmap", 5), ("100,000 numbers", "bsi", None),
    ("unique bigints", "bloom-filter", 8), ("unique 16-byte strings", "bloom-filter", 4),
]  # fmt: skip


def measure_building(rows: int, repeat: int, *, peers: bool) -> None:
    """Build every type of index from columns in memory.

    For pypaimon-rust, the time is the difference that an index adds to a write.
    """
    columns = make_columns(rows)
    runs: dict[str, Callable[[], object]] = {}
    for description, index, _ in BUILDS:
        column_type, values = columns[description]

        def build(
            column_type: str = column_type, values: pa.Array = values, index: str = index
        ) -> bytes:
            specs = parse_index_specs({f"file-index.{index}.columns": "c"})
            builder = FileIndexBuilder(specs, parse_columns(f"c {column_type}"))
            builder.add(pa.table({"c": values}))
            return builder.finish()

        runs[f"{index}: {description}"] = build
    seconds = medians(runs, repeat)
    rust_seconds = _measure_rust(columns, repeat) if peers else {}
    lines = []
    for description, index, goal in BUILDS:
        name = f"{index}: {description}"
        rust = rust_seconds.get(name)
        lines.append((
            name, f"{rows / seconds[name] / 1e6:.1f}", "" if goal is None else str(goal),
            "" if rust is None else f"{rows / rust / 1e6:.1f}",
        ))  # fmt: skip
    title = "Building indexes, million values per CPU second"
    show(title, ("", "ours", "goal", "pypaimon-rust"), lines)


def _measure_rust(columns: dict[str, tuple[str, pa.Array]], repeat: int) -> dict[str, float]:
    try:
        python = peer_start("pypaimon-rust").command[0]
    except PeerUnavailableError as error:
        console.print(f"Skipped pypaimon-rust: {error}")
        return {}
    seconds = {}
    with tempfile.TemporaryDirectory() as folder:
        for description, index, _ in BUILDS:
            if index not in ("bitmap", "bloom-filter"):
                continue
            column_type, values = columns[description]
            source = Path(folder) / "column.parquet"
            pq.write_table(pa.table({"c": values}), source)
            script = HERE / "file_index_rust_worker.py"
            seconds[f"{index}: {description}"] = run_json(
                python, script, str(source), column_type, index, str(repeat)
            )
    return seconds


def measure_evaluation(files: int, repeat: int) -> None:
    """Look up a value in statistics and embedded indexes, compared with decoding their manifest."""
    fields, lines = parse_columns("k BIGINT, s STRING"), []
    for index in ("bitmap", "bloom-filter", "range-bitmap"):
        options = {f"file-index.{index}.columns": "s"}
        options |= {"file-index.bloom-filter.s.items": "20"} if index == "bloom-filter" else {}
        specs = parse_index_specs(options)
        entries = [_make_entry(fields, specs, number) for number in range(files)]
        data = encode_manifest(entries)
        with tempfile.TemporaryDirectory() as folder:
            options = {"bucket": "-1"}
            table = Catalog(folder).create_table("db.t", "k BIGINT, s STRING", options=options)
            seconds = medians(_evaluation_runs(table, data), repeat)
        decode = seconds.pop("decode")
        lines.append((index, f"{decode:.3f}", *(f"{s / decode:.2f}" for s in seconds.values())))
    columns = (
        "",
        "decode manifest, CPU s",
        "evaluate / decode (goal 1.5)",
        "evaluate and decode selected / decode",
    )
    show(f"{files:,} embedded indexes; half of the files contain the value", columns, lines)


def _evaluation_runs(table: Table, data: bytes) -> dict[str, Callable[[], object]]:
    predicate = table.scan(filter="s = 'S3'").predicate
    assert predicate is not None
    entries = open_manifest(data, "manifest").entries()
    files, all_rows = [entry.file for entry in entries], np.arange(len(entries))

    def pruner() -> FilePruner:
        return FilePruner(table.load().schema, predicate, table.stores.schemas.get)

    def evaluate() -> int:
        return len(pruner().select_files([(entries[0].partition, files)])[0])

    def plan() -> int:
        manifest = open_manifest(data, "manifest")
        return len(manifest.entries(pruner().select_rows(manifest, all_rows)))

    assert 0 < evaluate() == plan() < len(files)
    return {
        "decode": lambda: open_manifest(data, "manifest").entries(),
        "evaluate": evaluate,
        "plan": plan,
    }


def _make_entry(fields: list[Field], specs: list[IndexSpec], number: int) -> ManifestEntry:
    builder = FileIndexBuilder(specs, fields)
    texts = [f"S{(number + row) % 40}" for row in range(20)]
    builder.add(pa.table({"k": np.arange(20), "s": texts}))
    bounds = [ColumnStats(0, 19, 0), ColumnStats(min(texts), max(texts), 0)]
    stats = SimpleStats.of(bounds, [field.type for field in fields])
    container = builder.finish()
    file = DataFileMeta(
        file_name=f"data-{number}.parquet",
        file_size=1000,
        row_count=20,
        value_stats=stats,
        embedded_index=container,
    )
    return ManifestEntry(
        kind=FileKind.ADD, partition=b"\0" * 12, bucket=0, total_buckets=-1, file=file
    )


def create_orders(root: Path, rows: int, matching: np.ndarray, *, indexed: bool) -> Table:
    """Create a table of about 100 bytes per row; ``status`` is PENDING in the matching rows."""
    random = np.random.default_rng(11)
    status = np.array(["NEW", "PAID", "SENT", "VOID"])[random.integers(0, 4, rows)]
    status = status.astype("<U7")
    status[matching] = "PENDING"
    options = {"bucket": "-1"} | ({"file-index.bitmap.columns": "status"} if indexed else {})
    columns = "id BIGINT, status STRING, amount DOUBLE, note STRING"
    table = Catalog(str(root)).create_table("db.t", columns, options=options)
    notes = random.integers(0, 256, (rows, 80), np.uint8) % 64 + 48
    table.append(
        pa.table({
            "id": np.arange(rows), "status": status, "amount": random.random(rows),
            "note": pa.array(notes.view("S80").ravel().astype("U80")),
        })
    )  # fmt: skip
    return table


def matching_rows(rows: int) -> dict[str, np.ndarray]:
    """Return the positions of one row in a thousand, by their distribution."""
    starts = np.random.default_rng(3).choice(rows // 20, max(1, rows // 20_000), replace=False)
    return {
        "adjacent": np.arange(rows // 2, rows // 2 + rows // 1_000),
        "ranges of 20": (np.sort(starts)[:, None] * 20 + np.arange(20)).ravel(),
        "scattered": np.arange(0, rows, 1_000),
    }


def measure_scans(rows: int, repeat: int) -> None:
    """Read one row in a thousand by index, compared with the same filter without an index."""
    lines, full_scan_ratios = [], []
    for name, matching in matching_rows(rows).items():
        with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
            plain = create_orders(Path(first), rows, matching, indexed=False)
            table = create_orders(Path(second), rows, matching, indexed=True)
            for columns in (None, ["id"]):
                seconds = medians(
                    {
                        "plain": partial(_scan, plain, columns),
                        "index": partial(_scan, table, columns),
                        "full scan": partial(_scan, table, columns, indexed=False),
                    },
                    repeat,
                )
                all_bytes, index_bytes = _bytes_read(plain, columns), _bytes_read(table, columns)
                lines.append((
                    name, "all" if columns is None else ", ".join(columns),
                    f"{all_bytes / 1e6:.2f}", f"{index_bytes / 1e6:.3f}",
                    f"{all_bytes / index_bytes:.0f}", f"{seconds['plain'] / seconds['index']:.1f}",
                ))  # fmt: skip
                full_scan_ratios.append(seconds["full scan"] / seconds["plain"])
            size_increase = _data_size(second) / _data_size(first) - 1
    header = ("rows", "columns", "MB without index", "MB with index", "ratio", "speedup")
    show(f"{rows:,} rows, one in 1,000 matches", header, lines)
    low, high = min(full_scan_ratios), max(full_scan_ratios)
    console.print(
        f"With the index, a full scan takes {low:.2f} to {high:.2f} times as long and the files "
        f"are {size_increase:.1%} larger."
    )


def _data_size(folder: str) -> int:
    return sum(path.stat().st_size for path in Path(folder).rglob("data-*.parquet"))


def _scan(table: Table, columns: list[str] | None, *, indexed: bool = True) -> int:
    options = {**table.load().schema.options, FILE_INDEX_READ_ENABLED.key: str(indexed).lower()}
    scan = table.scan(columns, filter="status = 'PENDING'")
    schema = replace(scan.schema, options=options)
    changed = replace(scan, state=build_table_state(scan.state, schema, scan.snapshot))
    rows: int = changed.to_arrow().num_rows
    return rows


def _bytes_read(table: Table, columns: list[str] | None) -> int:
    io = CountingIO()
    assert _scan(replace(table, io=io), columns) > 0
    return io.count


def measure_rewriting(rows: int) -> None:
    """Add an index to an existing table; compare the bytes read with the size of its columns."""
    with tempfile.TemporaryDirectory() as folder:
        table = create_orders(Path(folder), rows, np.arange(0, rows, 1_000), indexed=False)
        catalog = Catalog(folder)
        catalog.alter_table("db.t", [SetOption("file-index.bitmap.columns", "status,id")])
        io = CountingIO()
        rewrite_file_index(replace(catalog.table("db.t"), io=io), InProcessExecutor())
        column_bytes = 0
        for path in Path(folder).rglob("data-*.parquet"):
            metadata = pq.ParquetFile(path).metadata
            names = metadata.schema.to_arrow_schema().names
            for group in (metadata.row_group(group) for group in range(metadata.num_row_groups)):
                chunks = (group.column(names.index(name)) for name in ("status", "id"))
                column_bytes += sum(chunk.total_compressed_size for chunk in chunks)
        assert table.snapshot() is not None
    sizes = f"{column_bytes / 1e6:.2f}", f"{io.count / 1e6:.2f}"
    lines = [(*sizes, f"{io.count / column_bytes:.3f}", "1.05")]
    show("Rewriting the indexes of two columns", ("MB stored", "MB read", "ratio", "goal"), lines)


def main(
    rows: Annotated[int, typer.Option(help="Rows of each column and table.")] = 1_000_000,
    files: Annotated[int, typer.Option(help="Number of embedded indexes.")] = 10_000,
    repeat: Annotated[int, typer.Option(help="Number of runs; the median is printed.")] = 3,
    peers: Annotated[bool, typer.Option(help="Compare with pypaimon-rust.")] = True,  # noqa: FBT002
) -> None:
    """Measure and print."""
    measure_building(rows, repeat, peers=peers)
    measure_evaluation(files, repeat)
    measure_scans(rows, repeat)
    measure_rewriting(rows)


if __name__ == "__main__":
    typer.run(main)
