"""The main job end to end: real flights become a compacted table, and every row of it is checked."""

import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pandas as pd
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table as RichTable

from paimon_orch.demo.flights import (
    MONTHS,
    ROW_KIND_COLUMN,
    WAVES,
    build_wave,
    create_flight_board,
    find_flights_zip,
)
from paimon_orch.spark.execution.spark_executor import SparkExecutor
from paimon_orch.spark.session.session import java_in_use, spark_session
from paimon_orch.spark.writer import write
from paimon_orch.steps.compaction.compact import CompactionResult, compact
from paimon_orch.steps.inspection.inspect import TableReport, inspect
from paimon_orch.table.catalog import Catalog
from paimon_orch.table.table import Table


@dataclass(slots=True)
class _Stage:
    """One line of the closing summary: the table as it was, and as a step left it."""

    name: str
    seconds: float
    before: TableReport
    after: TableReport


@dataclass(slots=True)
class _DemoRun:
    """What the demo does its work with, and what it did."""

    table: Table
    console: Console
    stages: list[_Stage] = field(default_factory=list)

    @contextmanager
    def stage(self, name: str, total: int) -> Iterator[Callable[[int, int], None]]:
        """Time a step under a progress bar and look at the table before and after it."""
        before, started = inspect(self.table), time.monotonic()
        columns = (
            TextColumn("{task.description:<14}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self.console) as bars:
            task = bars.add_task(name, total=total)
            yield lambda done, of: bars.update(task, completed=done, total=of)
        seconds = time.monotonic() - started
        self.stages.append(_Stage(name, seconds, before, inspect(self.table)))


def run_demo(warehouse: str, months: int, console: Console) -> bool:
    """Run the job over the first ``months`` months of 2013; tell whether the table is right in the end."""
    started = time.monotonic()
    console.print(f"warehouse {warehouse}", soft_wrap=True, markup=False)
    run = _DemoRun(create_flight_board(Catalog(warehouse)), console)
    session = spark_session()
    console.print(
        f"Spark {session.version} on {java_in_use(session)}", markup=False, soft_wrap=True
    )
    executor = SparkExecutor(session)
    chosen = MONTHS[:months]
    for name in WAVES:
        with run.stage(name, len(chosen)) as progress:
            for done, month in enumerate(chosen, 1):
                write(
                    session.createDataFrame(build_wave(name, month)),
                    run.table,
                    row_kind=ROW_KIND_COLUMN,
                )
                progress(done, len(chosen))
        with run.stage("compact", 1) as progress:
            _print_compaction(run, compact(run.table, executor, progress=progress))
    with run.stage(f"full {chosen[0]}", 1) as progress:
        spec = {"flight_month": chosen[0]}
        compact(run.table, executor, partitions=[spec], strategy="full", progress=progress)
    wrong = _find_differences(run.table, chosen)
    _print_summary(run, time.monotonic() - started)
    if wrong:
        console.print(f"MISMATCH: {wrong}", style="bold red")
        return False
    console.print("every row equals what pandas computes from the CSV", style="bold green")
    console.print(f"next: PAIMON_WAREHOUSE={warehouse} make dev", soft_wrap=True, markup=False)
    return True


def _print_compaction(run: _DemoRun, result: CompactionResult) -> None:
    report = inspect(run.table)
    run.console.print(
        f"  snapshot {result.snapshot_id}: {result.buckets} buckets, {result.rows_written:,} rows rewritten; "
        f"deletion vectors now hide {report.deleted_rows:,} of {report.physical_rows:,} rows"
    )


def compute_expected_board(months: tuple[str, ...]) -> pd.DataFrame:
    """Return what the board must hold in the end, computed by pandas straight from the CSV."""
    with zipfile.ZipFile(find_flights_zip()) as archive, archive.open("flights.csv") as file:
        raw = pd.read_csv(file, parse_dates=["time_hour"])
    raw["flight_month"] = raw["year"].astype(str) + "-" + raw["month"].astype(str).str.zfill(2)
    board = raw[raw["flight_month"].isin(months) & raw["dep_time"].notna()].copy()
    board["status"] = board["arr_time"].notna().map({True: "ARRIVED", False: "DEPARTED"})
    board.loc[board["arr_time"].isna(), ["arr_delay", "air_time"]] = None
    board["time_hour"] = board["time_hour"].dt.tz_convert(None)
    return board


def _find_differences(table: Table, months: tuple[str, ...]) -> str:
    """Compare the table with pandas, row for row; return what is wrong, or an empty text."""
    quoted = ", ".join(f"'{month}'" for month in months)
    actual = table.scan(filter=f"flight_month in ({quoted})").to_pandas()
    expected = compute_expected_board(months)
    expected = expected[list(actual.columns)]
    keys = ["time_hour", "carrier", "flight"]
    sides = []
    for frame in (expected, actual):
        numbers = frame.select_dtypes("number").columns
        sides.append(
            frame.astype(dict.fromkeys(numbers, "Int64") | {"time_hour": "datetime64[ms]"})
            .astype(dict.fromkeys(frame.select_dtypes("object").columns, "string"))
            .sort_values(keys)
            .reset_index(drop=True)
        )
    if len(expected) != len(actual):
        return f"the table has {len(actual):,} rows, pandas computes {len(expected):,}"
    try:
        pd.testing.assert_frame_equal(sides[0], sides[1])
    except AssertionError as error:
        return str(error)
    return ""


def _print_summary(run: _DemoRun, seconds: float) -> None:
    """Print the table before and after every step, in a width that any terminal has."""
    shown = RichTable()
    for name in ("step", "snapshot", "rows", "files", "MB", "hidden", "sec"):
        shown.add_column(name, justify="left" if name == "step" else "right", no_wrap=True)
    for stage in run.stages:
        before, after = stage.before, stage.after
        rows = "?" if after.row_count is None else f"{after.row_count:,}"
        shown.add_row(
            stage.name,
            f"{after.snapshot_id or 0}",
            rows,
            f"{before.file_count} → {after.file_count}",
            f"{before.bytes / 1e6:.1f} → {after.bytes / 1e6:.1f}",
            f"{after.deleted_rows:,}",
            f"{stage.seconds:.1f}",
        )
    shown.add_row("all", "", "", "", "", "", f"{seconds:.1f}")
    run.console.print(shown)
    run.console.print("rows: what a reader sees; hidden: older versions that deletion vectors hide")
