"""The overhead of Dagster: sensor ticks, delay from commit to compaction, run vs. command line.

    python benchmarks/orchestration.py [--tables 300] [--repeat 3] [--no-live]

Goals: a tick without new snapshots opens one file and takes less than 20 ms of CPU time; a
component of 300 tables loads within 3 s of Dagster's own import, and each tick of its sensor takes
less than 15 s, also if half of the tables have changed; the same tables with a component each are
measured for comparison. The first tick of a table with twelve uncompacted months requests one run;
from a commit of another engine to the compacted snapshot, with the configuration of the demo, less
than 35 s: the 30 s of the sensor's interval plus 5 s; a run of a small compaction takes at most one
CPU second more than the start of its process. No JVM is started.
"""

from __future__ import annotations

import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import dagster as dg
import pyarrow as pa
import typer
from measurement import HERE, measure_process, show

# isort: split
from support.dagster.deployment import Deployment, wait_for_result

from paimon_orch import Catalog
from paimon_orch.dagster import (
    PaimonCatalogResource,
    PaimonDatabaseComponent,
    build_latest_snapshot_sensor,
)
from paimon_orch.format.snapshot import CommitKind
from paimon_orch.table.table import Table

COLUMNS = "dt STRING, id BIGINT, amount INT"
DAYS = [f"2026-01-{day:02d}" for day in range(1, 31)]
INTERVAL = 30
DEFINITIONS = HERE / "orchestration_definitions.py"
LOAD_DEFINITIONS = HERE / "load_definitions.py"


def create_table(warehouse: Path, name: str, days: int) -> Table:
    """Create a table with ``days`` partitions of a thousand rows each; it is not compacted."""
    table = Catalog(str(warehouse)).create_table(
        name,
        COLUMNS,
        primary_key=["dt", "id"],
        partition_by=["dt"],
        options={"bucket": "1", "deletion-vectors.enabled": "true"},
    )
    commit(table, *DAYS[:days])
    return table


def commit(table: Table, *days: str, rows: int = 1000) -> None:
    """Commit rows, like another engine."""
    ids = range(rows)
    table.upsert(
        pa.table(
            {
                "dt": [day for day in days for _ in ids],
                "id": [number for _ in days for number in ids],
                "amount": pa.array([1] * len(days) * rows, pa.int32()),
            }
        )
    )


class TestedSensor:
    """Evaluates a sensor as the code server does, but without a call to that server."""

    def __init__(self, warehouse: Path, sensor: dg.SensorDefinition) -> None:
        self._sensor = sensor
        self._paimon = PaimonCatalogResource(warehouse=str(warehouse))
        self._cursor: str | None = None

    def tick(self, instance: dg.DagsterInstance) -> Any:
        """Evaluate the sensor and store its cursor."""
        context = dg.build_sensor_context(
            instance=instance, cursor=self._cursor, resources={"paimon": self._paimon}
        )
        result = self._sensor(context)
        if isinstance(result, dg.SensorResult):
            self._cursor = result.cursor
        return result


def build_sensor(table: str, **arguments: Any) -> dg.SensorDefinition:
    """Return the sensor of one table with daily partitions."""
    definition = dg.StaticPartitionsDefinition(DAYS)
    return build_latest_snapshot_sensor(table, partitions_def=definition, **arguments)


@contextmanager
def record_opened_files(folder: Path) -> Iterator[list[str]]:
    """Collect the files in a folder that are opened within the context."""
    paths: list[str] = []
    active = True

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if active and event == "open" and str(arguments[0]).startswith(str(folder)):
            paths.append(str(arguments[0]))

    sys.addaudithook(hook)
    yield paths
    active = False


def measure_ticks(warehouse: Path, count: int, repeat: int) -> list[tuple[str, ...]]:
    """Measure ticks of many tables in one process: a sensor for each table, and one for all."""
    tables = [create_table(warehouse, f"many.t{number:03}", days=10) for number in range(count)]
    sensors = [TestedSensor(warehouse, build_sensor(table.identifier)) for table in tables]
    shared = TestedSensor(warehouse, _build_shared_sensor(warehouse, tables))
    with dg.DagsterInstance.ephemeral() as instance:
        for sensor in sensors:
            sensor.tick(instance)
        with record_opened_files(warehouse) as files:
            skipped = sensors[0].tick(instance)
        assert isinstance(skipped, dg.SkipReason), skipped
        idle_times = [cpu_seconds(lambda: sensors[0].tick(instance)) for _ in range(20 * repeat)]
        first = _tick_until_idle(shared, instance)
        idle = wall_clock_seconds(lambda: shared.tick(instance))
        for table in tables[::2]:
            commit(table, *DAYS[:3], rows=10)
        total_seconds = wall_clock_seconds(lambda: [sensor.tick(instance) for sensor in sensors])
        changed = _tick_until_idle(shared, instance)
    lake = f"sensor of {count} tables"
    return [
        ("tick without new snapshots: files opened", "1", str(len(files))),
        ("tick without new snapshots: CPU ms", "20", f"{statistics.median(idle_times) * 1000:.1f}"),
        (f"sensors of {count} tables, half of them changed: s", "", f"{total_seconds:.1f}"),
        (f"{lake}, first look: longest of {len(first)} ticks, s", "15", f"{max(first):.1f}"),
        (f"{lake}, nothing new: s", "", f"{idle:.1f}"),
        (f"{lake}, half changed: longest of {len(changed)} ticks, s", "15", f"{max(changed):.1f}"),
        (f"{lake}, half changed: all ticks, s", "", f"{sum(changed):.1f}"),
    ]


def _build_shared_sensor(warehouse: Path, tables: list[Table]) -> dg.SensorDefinition:
    """Return the sensor of a component of all tables."""
    component = PaimonDatabaseComponent.from_attributes_dict(
        attributes={
            "database": "many",
            "warehouse": str(warehouse),
            "partitions": {"values": DAYS},
        }
    )
    names = {table.identifier.partition(".")[2]: ["dt"] for table in tables}
    [sensor] = component.definitions(names).sensors or []
    assert isinstance(sensor, dg.SensorDefinition)
    return sensor


def _tick_until_idle(sensor: TestedSensor, instance: dg.DagsterInstance) -> list[float]:
    """Return the seconds of each tick until one requests no run."""
    seconds = list[float]()
    while True:
        start = time.perf_counter()
        result = sensor.tick(instance)
        seconds.append(time.perf_counter() - start)
        if not result.run_requests:
            return seconds


def measure_loading(folder: Path, count: int, repeat: int) -> list[tuple[str, ...]]:
    """Measure how long Dagster takes to load the definitions of many tables."""
    rows = list[tuple[str, ...]]()
    for kind, goal in (("tables", ""), ("database", "3")):
        command = [sys.executable, "-W", "ignore", str(LOAD_DEFINITIONS), kind, str(count)]
        environment = {**os.environ, "PYTHONPATH": str(HERE.parent), "DAGSTER_HOME": str(folder)}
        outputs = [
            subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
            for _ in range(repeat)
        ]
        walls, cpus = zip(*(map(float, each.stdout.split()) for each in outputs), strict=True)
        name = "one component" if kind == "database" else "a component for each"
        rows += [
            (f"loading {count} tables, {name}: s", goal, f"{statistics.median(walls):.1f}"),
            (f"loading {count} tables, {name}: CPU s", goal, f"{statistics.median(cpus):.1f}"),
        ]
    return rows


def wall_clock_seconds(run: Callable[[], object]) -> float:
    """Return the wall-clock seconds of a call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def cpu_seconds(run: Callable[[], object]) -> float:
    """Return the CPU seconds of a call."""
    start = time.process_time()
    run()
    return time.process_time() - start


def measure_run(folder: Path, repeat: int) -> list[tuple[str, ...]]:
    """Measure the process of a run, and a process that only loads the definitions."""
    warehouse, home = folder / "warehouse", folder / "home"
    home.mkdir(parents=True)
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}")
    table = create_table(warehouse, "lake.orders", days=1)
    environment = {
        "PAIMON_WAREHOUSE": str(warehouse),
        "DAGSTER_HOME": str(home),
        "PYTHONPATH": str(HERE.parent),
    }
    command = [sys.executable, "-W", "ignore", "-m", "dagster", "asset"]
    location = ["-f", str(DEFINITIONS)]
    selection = ["--select", "lake/orders/orders_compaction", "--partition", DAYS[0]]
    starts, runs = [], []
    for _ in range(repeat + 1):
        commit(table, DAYS[0], rows=24_000)
        starts.append(measure_process([*command, "list", *location], environment))
        runs.append(measure_process([*command, "materialize", *selection, *location], environment))
        assert _is_compacted(table)
    start = statistics.median(usage.cpu_seconds for usage in starts[1:])
    run = statistics.median(usage.cpu_seconds for usage in runs[1:])
    peak = max(usage.peak_mb for usage in runs)
    return [
        ("process that loads the definitions: CPU s", "", f"{start:.1f}"),
        ("process of a run of 24,000 rows: CPU s", f"{start + 1:.1f}", f"{run:.1f}"),
        ("the same: peak MB", "", f"{peak:.0f}"),
    ]


def measure_first_look(warehouse: Path) -> list[tuple[str, ...]]:
    """Count the runs that the first tick requests for a year of uncompacted months."""
    table = create_table(warehouse, "lake.year", days=12)
    sensor = TestedSensor(warehouse, build_sensor(table.identifier, max_partitions_per_run=12))
    with dg.DagsterInstance.ephemeral() as instance:
        result = sensor.tick(instance)
    return [("runs of the first tick, for 12 partitions", "1", str(len(result.run_requests)))]


def measure_deployment(folder: Path, repeat: int) -> list[tuple[str, ...]]:
    """Measure a deployment of Dagster processes with the configuration of the demo."""
    warehouse = folder / "warehouse"
    table = create_table(warehouse, "lake.orders", days=1)
    environment = {"PAIMON_WAREHOUSE": str(warehouse)}
    arguments = ["-f", str(DEFINITIONS)]
    deployment = Deployment(folder / "home", HERE.parent, arguments, environment)
    try:
        deployment.start()
        command_times = [_time_command_line(table, warehouse) for _ in range(repeat + 1)]
        deployment.start_daemon()
        commit(table, DAYS[0])
        _wait_until_compacted(table, deployment)  # the first tick of the sensor compacts it
        delays = [_time_sensor(table, deployment, turn) for turn in range(repeat)]
        run_times = _time_runs(deployment)[-repeat:]
    finally:
        deployment.close()
    command, run = statistics.median(command_times[1:]), statistics.median(run_times)
    return [
        (
            "from commit to compacted snapshot, maximum: s",
            f"{INTERVAL + 5}",
            f"{max(delays):.1f}",
        ),
        ("Dagster run, from launch to end: s", "", f"{run:.1f}"),
        ("the same compaction from the command line: s", "", f"{command:.1f}"),
    ]


def _time_runs(deployment: Deployment) -> list[float]:
    """Return the seconds of each run, oldest first, including the start of its process."""
    with deployment.instance() as instance:
        unfinished = dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED])
        wait_for_result(lambda: not instance.get_runs(unfinished), deployment.logs)
        runs = [instance.get_run_stats(run.run_id) for run in reversed(instance.get_runs())]
    return [(stats.end_time or 0) - (stats.launch_time or 0) for stats in runs]


def _is_compacted(table: Table) -> bool:
    latest = table.snapshot()
    return latest is not None and latest.commit_kind is CommitKind.COMPACT


def _wait_until_compacted(table: Table, deployment: Deployment) -> None:
    wait_for_result(lambda: _is_compacted(table), deployment.logs, seconds=180)


def _time_sensor(table: Table, deployment: Deployment, turn: int) -> float:
    # Each turn commits at a different time between two ticks.
    time.sleep(7 * turn)
    commit(table, DAYS[0])
    return wall_clock_seconds(lambda: _wait_until_compacted(table, deployment))


def _time_command_line(table: Table, warehouse: Path) -> float:
    commit(table, DAYS[0])
    code = "from paimon_orch.cli.app import main; main()"
    command = [sys.executable, "-c", code, "compact", str(warehouse), table.identifier]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    return wall_clock_seconds(
        lambda: subprocess.run(command, env=environment, check=True, capture_output=True)
    )


def main(
    tables: Annotated[int, typer.Option(help="Number of tables.")] = 300,
    repeat: Annotated[int, typer.Option(help="Number of runs; the median is printed.")] = 3,
    no_live: Annotated[  # noqa: FBT002
        bool, typer.Option("--no-live", help="Start no deployment; only measure ticks and a run.")
    ] = False,
) -> None:
    """Measure and print, with the goals."""
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        rows = measure_loading(Path(folder), tables, repeat)
        rows += measure_ticks(Path(folder) / "ticks", tables, repeat)
        rows += measure_first_look(Path(folder) / "ticks")
        rows += measure_run(Path(folder) / "run", repeat)
        if not no_live:
            (Path(folder) / "live").mkdir()
            rows += measure_deployment(Path(folder) / "live", repeat)
    show("Dagster, wall-clock unless a row says CPU", ("", "goal", "measured"), rows)


if __name__ == "__main__":
    typer.run(main)
