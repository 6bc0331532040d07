"""The demo pipeline: writes flights, compacts the table, and compares all rows with the source."""

import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pandas as pd
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table as RichTable

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.demo.flights import (
    MONTHS,
    ROW_KIND_COLUMN,
    WAVES,
    Wave,
    build_wave,
    create_flight_board,
    find_flights_zip,
)
from paimon_orch.spark.frame_writer import write
from paimon_orch.spark.session.session import java_in_use, spark_session
from paimon_orch.steps.common.local_executor import LocalExecutor
from paimon_orch.steps.compaction.compact import CompactionResult, compact
from paimon_orch.steps.inspection.inspect import TableReport, inspect
from paimon_orch.table.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(slots=True)
class _Stage:
    """A row of the summary: the table before and after a step."""

    name: str
    seconds: float
    before: TableReport
    after: TableReport


@dataclass(slots=True)
class _DemoRun:
    """The state of a run of the demo."""

    table: Table
    console: Console
    stages: list[_Stage] = field(default_factory=list)

    @contextmanager
    def stage(self, name: str, total: int) -> Iterator[Callable[[int, int], None]]:
        """Measure a step, show its progress, and inspect the table before and after it."""
        before, started = inspect(self.table), time.monotonic()
        columns = (
            TextColumn("{task.description:<14}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self.console) as bars:
            task = bars.add_task(name, total=total)
            yield lambda done, total: bars.update(task, completed=done, total=total)
        seconds = time.monotonic() - started
        self.stages.append(_Stage(name, seconds, before, inspect(self.table)))


def run_demo(warehouse: str, months: int, console: Console) -> bool:
    """Run the demo for the first ``months`` months of 2013; return whether the rows are correct."""
    started = time.monotonic()
    console.print(f"warehouse {warehouse}", soft_wrap=True, markup=False)
    run = _DemoRun(create_flight_board(Catalog(warehouse)), console)
    session = spark_session(use_vector_module=False)  # as commands do, without a warning of Java
    console.print(
        f"Spark {session.version} on {java_in_use(session)}", markup=False, soft_wrap=True
    )
    executor, partitions = LocalExecutor(), MONTHS[:months]
    for wave in WAVES:
        _write_wave(run, session, wave, partitions)
        with run.stage("compact", 1) as progress:
            _print_compaction(run, compact(run.table, executor, progress=progress))
    with run.stage(f"full {partitions[0]}", 1) as progress:
        spec = {"flight_month": partitions[0]}
        compact(run.table, executor, partitions=[spec], strategy="full", progress=progress)
    differences = _find_differences(run.table, partitions)
    _print_summary(run, time.monotonic() - started)
    if differences:
        console.print(f"MISMATCH: {differences}", style="bold red")
        return False
    console.print("all rows equal the rows that pandas computes from the CSV", style="bold green")
    console.print(f"next: PAIMON_WAREHOUSE={warehouse} make dev", soft_wrap=True, markup=False)
    return True


def _write_wave(
    run: _DemoRun, session: "SparkSession", wave: Wave, partitions: Sequence[str]
) -> None:
    with run.stage(wave, len(partitions)) as progress:
        for completed, month in enumerate(partitions, 1):
            rows = session.createDataFrame(build_wave(wave, month))
            write(rows, run.table, row_kind=ROW_KIND_COLUMN)
            progress(completed, len(partitions))


def _print_compaction(run: _DemoRun, result: CompactionResult) -> None:
    report = inspect(run.table)
    run.console.print(
        f"  snapshot {result.snapshot_id}: {result.buckets} buckets, "
        f"{result.rows_written:,} rows rewritten; "
        f"{report.deleted_rows:,} of {report.physical_rows:,} rows deleted"
    )


def compute_expected_board(months: tuple[str, ...]) -> pd.DataFrame:
    """Return the expected rows of the board, computed by pandas from the CSV."""
    with zipfile.ZipFile(find_flights_zip()) as archive, archive.open("flights.csv") as file:
        raw = pd.read_csv(file, parse_dates=["time_hour"])
    raw["flight_month"] = raw["year"].astype(str) + "-" + raw["month"].astype(str).str.zfill(2)
    board = raw[raw["flight_month"].isin(months) & raw["dep_time"].notna()].copy()
    board["status"] = board["arr_time"].notna().map({True: "ARRIVED", False: "DEPARTED"})
    board.loc[board["arr_time"].isna(), ["arr_delay", "air_time"]] = None
    board["time_hour"] = board["time_hour"].dt.tz_convert(None)
    return board


def _find_differences(table: Table, months: tuple[str, ...]) -> str:
    """Compare the table with pandas row by row; return the difference, or an empty string."""
    quoted = ", ".join(f"'{month}'" for month in months)
    actual = table.scan(filter=f"flight_month in ({quoted})").to_pandas()
    expected = compute_expected_board(months)[list(actual.columns)]
    if len(expected) != len(actual):
        return f"the table has {len(actual):,} rows, pandas computes {len(expected):,}"
    try:
        pd.testing.assert_frame_equal(_normalize_frame(expected), _normalize_frame(actual))
    except AssertionError as error:
        return str(error)
    return ""


def _normalize_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame with nullable types, sorted by the key of flights."""
    numbers = dict.fromkeys(frame.select_dtypes("number").columns, "Int64")
    column_types = dict.fromkeys(frame.select_dtypes("object").columns, "string")
    return (
        frame.astype(numbers | {"time_hour": "datetime64[ms]"})
        .astype(column_types)
        .sort_values(["time_hour", "carrier", "flight"])
        .reset_index(drop=True)
    )


def _print_summary(run: _DemoRun, seconds: float) -> None:
    """Print the state of the table before and after each step."""
    summary = RichTable()
    for name in ("step", "snapshot", "rows", "files", "MB", "deleted", "sec"):
        summary.add_column(name, justify="left" if name == "step" else "right", no_wrap=True)
    for stage in run.stages:
        before, after = stage.before, stage.after
        rows = "?" if after.row_count is None else f"{after.row_count:,}"
        summary.add_row(
            stage.name,
            f"{after.snapshot_id or 0}",
            rows,
            f"{before.file_count} → {after.file_count}",
            f"{before.bytes / 1e6:.1f} → {after.bytes / 1e6:.1f}",
            f"{after.deleted_rows:,}",
            f"{stage.seconds:.1f}",
        )
    summary.add_row("all", "", "", "", "", "", f"{seconds:.1f}")
    run.console.print(summary)
    run.console.print("rows: visible rows; deleted: rows that deletion vectors mark as deleted")
