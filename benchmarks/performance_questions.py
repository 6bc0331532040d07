"""The questions of performance.py: each function creates tables, measures, and returns an answer."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from compaction import BATCHES, ENGINES, Compaction, create_table, make_rows
from java_paimon import start_java
from listed_files import build_partition_name
from many_files import open_many_files
from measurement import ProcessUsage, measure_process, medians
from performance_results import Answer, Bar
from row_group_copy import DECODE, Packing
from row_group_copy import create_table as create_append_table
from tpch import KEYS, cast_text, column_types, require_generator

from paimon_orch import Catalog
from paimon_orch.demo.flights import ROW_KIND_COLUMN, WAVES, build_wave, create_flight_board
from paimon_orch.files.batch_sizes import DEFAULT_BATCH_SIZES
from paimon_orch.steps.compaction import compact
from paimon_orch.table.table import Table

OURS, JAVA, BASELINE = "paimon_orch", "Java Paimon 2.0", "reading and writing with pyarrow"
ROWS_PER_CORE, BYTES_PER_CORE = "million rows per CPU second", "MB of input files per CPU second"
HALF_COPIED = "deduplicate, half of the row groups copied"
_METADATA_COMMANDS = {
    "plan of one partition": (
        "compact",
        "--dry-run",
        "--partitions",
        f"dt={build_partition_name(0)}",
    ),
    "plan of all partitions": ("compact", "--dry-run"),
    "inspect": ("inspect",),
}
CPU_SECONDS, PEAK_MB = "CPU seconds", "peak MB of the largest process"


def full_compaction(rows: int = 4_000_000, repeat: int = 3) -> Answer:
    """Measure full compactions of updates of all rows, and of the second half of the keys."""
    java = start_java()
    bars: list[Bar] = []
    groups = [
        (engine, {"merge-engine": engine, **options}, 1.0) for engine, options in ENGINES.items()
    ]
    groups.append((HALF_COPIED, {"bucket": "1"}, 0.5))
    for group, options, updated_share in groups:
        with tempfile.TemporaryDirectory() as folder:
            warehouse = Path(folder) / "warehouse"
            table = create_table(warehouse, "bigint", rows, options, updated_share=updated_share)
            compaction, size = Compaction(table, "full"), _count_bytes(table)
            runs = {BASELINE: compaction.baseline(Path(folder)), OURS: compaction.run_and_discard}
            seconds = medians(runs, repeat)
            if java is not None:
                seconds[JAVA] = java.compact(warehouse, table.identifier, repeat, full=True)
            for series in (OURS, JAVA, BASELINE):
                if series in seconds:
                    speed = _build_speed(group, series, compaction.rows, size, seconds[series])
                    bars.extend(speed)
    if java is not None:
        java.close()
    return Answer(
        title="How fast is a full compaction?",
        bars=bars,
        details={"table": f"{rows:,} rows on the highest level, {BATCHES} batches of 2 % updates"},
    )


def lineitem(scale: int = 27, update_share: float = 0.02) -> Answer:
    """Measure a full compaction of TPC-H's lineitem; scale 27 is 20 GB of text."""
    bars: list[Bar] = []
    details = {}
    with tempfile.TemporaryDirectory() as folder:
        for size in (1, scale):
            warehouse = Path(folder) / str(size)
            table = _create_lineitem(warehouse, size, update_share)
            plan = compact.plan(table, compact.CompactRequest(strategy="full"))
            # units of one bucket can share files, so their numbers of rows must not be added
            rows, size_in_bytes = _count_rows(table), _count_bytes(table)
            usage = _compact(warehouse, table, "full")
            group = f"scale {size}"
            bars += _build_speed(group, OURS, rows, size_in_bytes, usage.cpu_seconds)
            bars.append(Bar(group=group, series=OURS, unit=PEAK_MB, value=usage.peak_mb))
            details[group] = (
                f"{rows:,} rows, {size_in_bytes / 1e9:.2f} GB of Parquet files in "
                f"{len(plan.units)} units, {usage.cpu_seconds:.0f} CPU s, "
                f"{usage.wall_seconds:.0f} s by the clock"
            )
            shutil.rmtree(warehouse)
    return Answer(title="Does the speed hold for 20 GB of lineitem?", bars=bars, details=details)


def deletes(rows: int = 5_000_000) -> Answer:
    """Measure compactions after many deletes."""
    bars = []
    for share in (0.01, 0.1, 0.5, 0.9):
        group = f"{share:.0%} deleted"
        with tempfile.TemporaryDirectory() as folder:
            table = _create_deletes(Path(folder), rows, share)
            for strategy, series in (
                ("minor", "lookup compaction"),
                ("full", "full compaction"),
            ):
                usage = _compact(Path(folder), table, strategy)
                bars += [
                    Bar(group=group, series=series, unit=unit, value=value)
                    for unit, value in _list_costs(usage)
                ]
    details = {"table": f"{rows:,} rows in 2 buckets"}
    return Answer(title="What do deleted rows cost?", bars=bars, details=details)


def packing(files: int = 2_000, repeat: int = 3) -> Answer:
    """Measure a compaction of small files of an append table."""
    with tempfile.TemporaryDirectory() as folder:
        work = Packing(create_append_table(Path(folder) / "warehouse", files))
        runs: dict[str, Callable[[], object]] = {
            "copying the bytes of the files": lambda: work.copy_bytes(Path(folder) / "copy"),
            "paimon_orch: copying row groups": lambda: work.run(DEFAULT_BATCH_SIZES),
            "paimon_orch: decoding all values": lambda: work.run(DECODE),
        }
        seconds = medians(runs, repeat)
        size = work.count_bytes()
    unit = "GB per CPU second"
    bars = [
        Bar(group=name, series=OURS, unit=unit, value=size / value / 1e9)
        for name, value in seconds.items()
    ]
    details = {"table": f"{files:,} files of {size / files / 1e6:.1f} MB"}
    return Answer(title="How fast are small append files packed?", bars=bars, details=details)


def many_files(files: int = 1_000_000) -> Answer:
    """Measure commands that read the metadata of a table with many files."""
    bars = []
    for count in (files // 10, files):
        table = open_many_files(files=count)
        warehouse = str(Path(table.paths.root).parents[1])
        for name, (command, *options) in _METADATA_COMMANDS.items():
            usage = _run_command(command, warehouse, table.identifier, *options)
            for unit, value in _list_costs(usage):
                bars.append(Bar(group=name, series=f"{count:,} files", unit=unit, value=value))
    return Answer(title="What does the metadata of many files cost?", bars=bars)


def small_compaction(month: str = "2013-01", repeat: int = 3) -> Answer:
    """Measure the command that compacts one month of the demo, including the start of Python."""
    bars: list[Bar] = []
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        table = create_flight_board(Catalog(str(source)))
        for wave in WAVES:
            table.upsert(build_wave(wave, month), row_kind=ROW_KIND_COLUMN)
        for executor, group in (("auto", "without Spark"), ("spark", "with Spark")):
            usages = []
            for turn in range(repeat):
                warehouse = Path(folder) / f"{executor}-{turn}"
                shutil.copytree(source, warehouse)
                usages.append(
                    _run_command(
                        "compact", str(warehouse), table.identifier, "--executor", executor
                    )
                )
            values = {
                CPU_SECONDS: median(usage.cpu_seconds for usage in usages),
                "seconds by the clock": median(usage.wall_seconds for usage in usages),
            }
            bars += [
                Bar(group=group, series=OURS, unit=unit, value=value)
                for unit, value in values.items()
            ]
    return Answer(title="How long does a small compaction take?", bars=bars)


QUESTIONS: Mapping[str, Callable[[], Answer]] = {
    "small-compaction": small_compaction,
    "full-compaction": full_compaction,
    "packing": packing,
    "many-files": many_files,
    "deletes": deletes,
    "lineitem": lineitem,
}


def _compact(warehouse: Path, table: Table, strategy: str) -> ProcessUsage:
    """Compact a table with the command line, in worker processes of this machine."""
    return _run_command(
        "compact", str(warehouse), table.identifier, "--strategy", strategy, "--executor", "local"
    )


def _run_command(*arguments: str) -> ProcessUsage:
    # inspect and check exit with 1 if they find something
    command = [sys.executable, "-m", "paimon_orch", *arguments]
    return measure_process(command, exit_codes=(0, 1))


def _list_costs(usage: ProcessUsage) -> list[tuple[str, float]]:
    return [(CPU_SECONDS, usage.cpu_seconds), (PEAK_MB, usage.peak_mb)]


def _build_speed(
    group: str, series: str, rows: int, size: int, cpu_seconds: float
) -> Iterator[Bar]:
    values = {ROWS_PER_CORE: rows / cpu_seconds / 1e6, BYTES_PER_CORE: size / cpu_seconds / 1e6}
    for unit, value in values.items():
        yield Bar(group=group, series=series, unit=unit, value=value)


def _count_rows(table: Table) -> int:
    return sum(file.row_count for split in table.scan().plan() for file in split.files)


def _count_bytes(table: Table) -> int:
    return sum(file.file_size for split in table.scan().plan() for file in split.files)


def _create_deletes(warehouse: Path, rows: int, share: float) -> Table:
    """Create a compacted table with deletion vectors, and one batch of deletes on level 0."""
    table = create_table(
        warehouse, "bigint", rows, {"bucket": "2", "deletion-vectors.enabled": "true"}, batches=0
    )
    deleted = np.random.default_rng(0).permutation(rows)[: int(rows * share)]
    deleted.sort()
    table.upsert(make_rows("bigint", deleted, 1, len(deleted)), row_kind="kind")
    return table


def _create_lineitem(warehouse: Path, scale: int, update_share: float) -> Table:
    """Create a compacted table of TPC-H's lineitem and update a share of all rows."""
    table, updates = None, []
    random = np.random.default_rng(0)
    for part in range(1, scale + 1):
        rows = _generate_lineitem(warehouse, scale, part)
        if table is None:
            table = Catalog(str(warehouse)).create_table(
                "db.lineitem",
                column_types(rows.schema),
                primary_key=KEYS["lineitem"],
                options={
                    "bucket": str(max(2, scale // 2)),
                    "num-sorted-run.compaction-trigger": "1000",
                },
            )
        table.upsert(rows)
        updates.append(rows.take(np.flatnonzero(random.random(len(rows)) < update_share)))
    assert table is not None
    _compact(warehouse, table, "full")
    changed = pa.concat_tables(updates)
    index = changed.schema.get_field_index("l_comment")
    comments = pc.binary_join_element_wise("changed:", changed.column(index), " ")
    table.upsert(changed.set_column(index, "l_comment", comments))
    return table


def _generate_lineitem(folder: Path, scale: int, part: int) -> pa.Table:
    """Return one of ``scale`` parts of lineitem, about six million rows."""
    target = folder.with_name("tpch")
    subprocess.run(
        [
            require_generator(),
            "parquet",
            "-s",
            str(scale),
            "--tables=lineitem",
            f"--parts={scale}",
            f"--part={part}",
            f"--output-dir={target}",
        ],
        check=True,
        capture_output=True,
    )
    tables = [pq.read_table(path) for path in sorted(target.rglob("*.parquet"))]
    shutil.rmtree(target)
    return cast_text(pa.concat_tables(tables))
