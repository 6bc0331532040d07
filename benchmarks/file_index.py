"""File indexes: how fast they are built and asked, and what they save.

    python benchmarks/file_index.py [--rows 1000000] [--files 10000] [--repeat 3] [--no-peers]

Goals: bitmaps at 15 million values a second on few texts and 5 million on 100,000 numbers, range bitmaps at 5 million,
bloom filters at 8 million on numbers and 4 million on texts of 16 bytes, all at least as fast as pypaimon-rust; 10,000
embedded indexes asked in less than 1.5 times what it takes to decode their manifests; a filter that finds one row in a
thousand reads a fraction of the table; a rewrite reads no more than the indexed columns and 5 %.
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
from measure import HERE, console, medians, run_json, show
from support.peers.environments import PeerUnavailableError, peer_start

from paimon_orch import Catalog
from paimon_orch.format.file_index.build import FileIndexBuilder
from paimon_orch.format.file_index.index_options import (
    IndexSpec,
    parse_index_specs,
)
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


class CountingIO(LocalFileIO):
    """The local file system, which counts the bytes of data and index files that are read."""

    count = 0

    def open_input(self, path: str) -> IO[bytes]:
        """Open for random reads."""
        return cast("IO[bytes]", _Counted(super().open_input(path), self))


class _Counted:
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


def columns_of(rows: int) -> dict[str, tuple[str, pa.Array]]:
    """Return columns to index, by what is in them, with their types."""
    random = np.random.default_rng(7)
    few = np.array([f"STATUS-{number}" for number in range(12)])
    unique = random.integers(0, 2**62, rows)
    return {
        "12 texts": ("STRING", pa.array(few[random.integers(0, 12, rows)])),
        "100,000 numbers": ("INT", pa.array(random.integers(0, 100_000, rows).astype(np.int32))),
        "unique bigints": ("BIGINT", pa.array(unique)),
        "unique texts of 16": ("STRING", pa.array([f"{n:016x}" for n in unique.tolist()])),
    }


BUILDS = [
    ("12 texts", "bitmap", 15), ("100,000 numbers", "bitmap", 5), ("12 texts", "range-bitmap", 5),
    ("100,000 numbers", "range-bitmap", 5), ("unique bigints", "range-bitmap", 5), ("100,000 numbers", "bsi", None),
    ("unique bigints", "bloom-filter", 8), ("unique texts of 16", "bloom-filter", 4),
]  # fmt: skip


def building(rows: int, repeat: int, *, peers: bool) -> None:
    """Build every type of index from columns in memory; pypaimon-rust by what an index adds to a write."""
    columns = columns_of(rows)
    runs: dict[str, Callable[[], object]] = {}
    for what, index, _ in BUILDS:
        kind, values = columns[what]

        def build(kind: str = kind, values: pa.Array = values, index: str = index) -> bytes:
            specs = parse_index_specs({f"file-index.{index}.columns": "c"})
            builder = FileIndexBuilder(specs, parse_columns(f"c {kind}"))
            builder.add(pa.table({"c": values}))
            return builder.finish()

        runs[f"{index}: {what}"] = build
    seconds = medians(runs, repeat)
    theirs = _rust(columns, repeat) if peers else {}
    shown = []
    for what, index, goal in BUILDS:
        name = f"{index}: {what}"
        rust = theirs.get(name)
        shown.append((
            name, f"{rows / seconds[name] / 1e6:.1f}", "" if goal is None else str(goal),
            "" if rust is None else f"{rows / rust / 1e6:.1f}",
        ))  # fmt: skip
    show("Building, million values a CPU second", ("", "ours", "goal", "pypaimon-rust"), shown)


def _rust(columns: dict[str, tuple[str, pa.Array]], repeat: int) -> dict[str, float]:
    try:
        python = peer_start("pypaimon-rust").command[0]
    except PeerUnavailableError as error:
        console.print(f"pypaimon-rust is left out: {error}")
        return {}
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for what, index, _ in BUILDS:
            if index not in ("bitmap", "bloom-filter"):
                continue
            kind, values = columns[what]
            source = Path(folder) / "column.parquet"
            pq.write_table(pa.table({"c": values}), source)
            script = HERE / "file_index_rust_side.py"
            found[f"{index}: {what}"] = run_json(
                python, script, str(source), kind, index, str(repeat)
            )
    return found


def asking(files: int, repeat: int) -> None:
    """Ask statistics and embedded indexes for one value, beside decoding the manifest that holds them."""
    fields, shown = parse_columns("k BIGINT, s STRING"), []
    for index in ("bitmap", "bloom-filter", "range-bitmap"):
        options = {f"file-index.{index}.columns": "s"}
        options |= {"file-index.bloom-filter.s.items": "20"} if index == "bloom-filter" else {}
        specs = parse_index_specs(options)
        entries = [_entry(fields, specs, number) for number in range(files)]
        data = encode_manifest(entries, "zstandard")
        with tempfile.TemporaryDirectory() as folder:
            options = {"bucket": "-1"}
            table = Catalog(folder).create_table("db.t", "k BIGINT, s STRING", options=options)
            seconds = medians(_questions(table, data), repeat)
        decode = seconds.pop("decode")
        shown.append((index, f"{decode:.3f}", *(f"{s / decode:.2f}" for s in seconds.values())))
    columns = (
        "",
        "CPU seconds to decode",
        "to ask, beside it (goal 1.5)",
        "to decode what is left",
    )
    show(f"{files:,} embedded indexes, half of them of files with the value", columns, shown)


def _questions(table: Table, data: bytes) -> dict[str, Callable[[], object]]:
    predicate = table.scan(filter="s = 'S3'").predicate
    assert predicate is not None
    opened = open_manifest(data, "manifest")
    entries = opened.entries()
    found, everything = [entry.file for entry in entries], np.arange(len(entries))

    def pruner() -> FilePruner:
        return FilePruner(table.schema, predicate, table.stores.schemas.get)

    def ask() -> int:
        return len(pruner().select_files([(entries[0].partition, found)])[0])

    def plan() -> int:
        manifest = open_manifest(data, "manifest")
        return len(manifest.entries(pruner().select_rows(manifest, everything)))

    assert 0 < ask() == plan() < len(found)
    return {"decode": lambda: open_manifest(data, "manifest").entries(), "ask": ask, "plan": plan}


def _entry(fields: list[Field], specs: list[IndexSpec], number: int) -> ManifestEntry:
    builder = FileIndexBuilder(specs, fields)
    texts = [f"S{(number + at) % 40}" for at in range(20)]
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


def make_orders(root: Path, rows: int, chosen: np.ndarray, *, indexed: bool) -> Table:
    """Return a table of about 100 bytes a row, where ``status`` is PENDING in the chosen rows."""
    random = np.random.default_rng(11)
    status = np.array(["NEW", "PAID", "SENT", "VOID"])[random.integers(0, 4, rows)]
    status = status.astype("<U7")
    status[chosen] = "PENDING"
    options = {"bucket": "-1"} | ({"file-index.bitmap.columns": "status"} if indexed else {})
    text = "id BIGINT, status STRING, amount DOUBLE, note STRING"
    table = Catalog(str(root)).create_table("db.t", text, options=options)
    notes = random.integers(0, 256, (rows, 80), np.uint8) % 64 + 48
    table.append(
        pa.table({
            "id": np.arange(rows), "status": status, "amount": random.random(rows),
            "note": pa.array(notes.view("S80").ravel().astype("U80")),
        })
    )  # fmt: skip
    return table


def places(rows: int) -> dict[str, np.ndarray]:
    """Return one row in a thousand, by where they are."""
    starts = np.random.default_rng(3).choice(rows // 20, max(1, rows // 20_000), replace=False)
    return {
        "together": np.arange(rows // 2, rows // 2 + rows // 1_000),
        "20 by 20": (np.sort(starts)[:, None] * 20 + np.arange(20)).ravel(),
        "scattered": np.arange(0, rows, 1_000),
    }


def saving(rows: int, repeat: int) -> None:
    """Find one row in a thousand by index, beside a full scan of the same rows in a table without indexes."""
    shown, costs = [], []
    for name, chosen in places(rows).items():
        with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
            plain = make_orders(Path(first), rows, chosen, indexed=False)
            table = make_orders(Path(second), rows, chosen, indexed=True)
            for columns in (None, ["id"]):
                seconds = medians(
                    {
                        "plain": partial(_scan, plain, columns),
                        "index": partial(_scan, table, columns),
                        "small pages": partial(_scan, table, columns, indexed=False),
                    },
                    repeat,
                )
                full, found = _counted(plain, columns), _counted(table, columns)
                shown.append((
                    name, "all" if columns is None else ", ".join(columns), f"{full / 1e6:.2f}", f"{found / 1e6:.3f}",
                    f"{full / found:.0f}", f"{seconds['plain'] / seconds['index']:.1f}",
                ))  # fmt: skip
                costs.append(seconds["small pages"] / seconds["plain"])
            larger = _stored(second) / _stored(first) - 1
    columns_shown = ("rows", "columns", "MB, full", "by index", "times fewer", "times faster")
    show(f"{rows:,} rows, one in 1,000 matches", columns_shown, shown)
    console.print(
        f"a full scan of the table with the index takes {min(costs):.2f} to {max(costs):.2f} times as long, "
        f"its files are {larger:.1%} larger"
    )


def _stored(folder: str) -> int:
    return sum(path.stat().st_size for path in Path(folder).rglob("data-*.parquet"))


def _scan(table: Table, columns: list[str] | None, *, indexed: bool = True) -> int:
    options = {**table.schema.options, FILE_INDEX_READ_ENABLED.key: str(indexed).lower()}
    scan = table.scan(columns, filter="status = 'PENDING'")
    rows: int = replace(scan, schema=replace(scan.schema, options=options)).to_arrow().num_rows
    return rows


def _counted(table: Table, columns: list[str] | None) -> int:
    io = CountingIO()
    assert _scan(replace(table, io=io), columns) > 0
    return io.count


def rewriting(rows: int) -> None:
    """Give an old table an index, and compare what is read with the size of the indexed column."""
    with tempfile.TemporaryDirectory() as folder:
        table = make_orders(Path(folder), rows, np.arange(0, rows, 1_000), indexed=False)
        catalog = Catalog(folder)
        catalog.alter_table("db.t", [SetOption("file-index.bitmap.columns", "status,id")])
        io = CountingIO()
        rewrite_file_index(replace(catalog.table("db.t"), io=io), InProcessExecutor())
        stored = 0
        for path in Path(folder).rglob("data-*.parquet"):
            metadata = pq.ParquetFile(path).metadata
            names = metadata.schema.to_arrow_schema().names
            for group in (metadata.row_group(group) for group in range(metadata.num_row_groups)):
                chunks = (group.column(names.index(name)) for name in ("status", "id"))
                stored += sum(chunk.total_compressed_size for chunk in chunks)
        assert table.snapshot() is not None
    shown = [(f"{stored / 1e6:.2f}", f"{io.count / 1e6:.2f}", "1.05", f"{io.count / stored:.3f}")]
    show("Rewriting the indexes of two columns", ("MB stored", "MB read", "goal", "share"), shown)


def main(
    rows: Annotated[int, typer.Option(help="Rows of a column or table.")] = 1_000_000,
    files: Annotated[int, typer.Option(help="Embedded indexes.")] = 10_000,
    repeat: Annotated[int, typer.Option(help="Runs, of which the median counts.")] = 3,
    peers: Annotated[bool, typer.Option(help="Also run pypaimon-rust.")] = True,  # noqa: FBT002
) -> None:
    """Measure and print."""
    building(rows, repeat, peers=peers)
    asking(files, repeat)
    saving(rows, repeat)
    rewriting(rows)


if __name__ == "__main__":
    typer.run(main)
