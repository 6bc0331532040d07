"""What Dagster adds: a sensor's ticks, the way from a commit to its compaction, and a run beside the command line.

    python benchmarks/orchestration.py [--tables 200] [--repeat 3] [--no-live]

Goals: a tick with nothing new opens one file and takes less than 20 ms of our own time; 200 tables in one process, half
of them changed, less than the 60 s that Dagster gives a tick; from another engine's commit to the compacted snapshot,
with Spark warm and default intervals, the sensor's 30 s and 10 more.
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
from measure import HERE, console, show

# isort: split
from support.dagster.deployment import Deployment, free_port, is_listening, wait_for_result

from paimon_orch import Catalog
from paimon_orch.dagster import PaimonCatalogResource, build_latest_snapshot_sensor
from paimon_orch.format.snapshot import CommitKind
from paimon_orch.spark.session.java_home import find_java
from paimon_orch.table.table import Table

COLUMNS = "dt STRING, id BIGINT, amount INT"
DAYS = [f"2026-01-{day:02d}" for day in range(1, 31)]
INTERVAL = 30


def make_table(warehouse: Path, name: str, days: int) -> Table:
    """Return a table of so many partitions of a thousand rows each, compacted by nobody."""
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
    """Commit as another engine does."""
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


class Ticks:
    """A sensor that is evaluated as the code server does it, without the way there."""

    def __init__(self, warehouse: Path, table: str) -> None:
        definition = dg.StaticPartitionsDefinition(DAYS)
        self._sensor = build_latest_snapshot_sensor(table, partitions_def=definition)
        self._paimon = PaimonCatalogResource(warehouse=str(warehouse))
        self._cursor: str | None = None

    def tick(self, instance: dg.DagsterInstance) -> Any:
        """Evaluate the sensor, and keep its cursor."""
        context = dg.build_sensor_context(
            instance=instance, cursor=self._cursor, resources={"paimon": self._paimon}
        )
        result = self._sensor(context)
        if isinstance(result, dg.SensorResult):
            self._cursor = result.cursor
        return result


@contextmanager
def opened(folder: Path) -> Iterator[list[str]]:
    """Collect the files below a folder that are opened meanwhile."""
    found: list[str] = []
    active = True

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if active and event == "open" and str(arguments[0]).startswith(str(folder)):
            found.append(str(arguments[0]))

    sys.addaudithook(hook)
    yield found
    active = False


def ticks(warehouse: Path, count: int, repeat: int) -> list[tuple[str, ...]]:
    """Measure ticks of many tables in one process."""
    tables = [make_table(warehouse, f"many.t{number}", days=10) for number in range(count)]
    sensors = [Ticks(warehouse, table.identifier) for table in tables]
    with dg.DagsterInstance.ephemeral() as instance:
        for sensor in sensors:
            sensor.tick(instance)
        with opened(warehouse) as files:
            skipped = sensors[0].tick(instance)
        assert isinstance(skipped, dg.SkipReason), skipped
        idle = [cpu_seconds(lambda: sensors[0].tick(instance)) for _ in range(20 * repeat)]
        for table in tables[::2]:
            commit(table, *DAYS[:3], rows=10)
        all_of_them = seconds(lambda: [sensor.tick(instance) for sensor in sensors])
    return [
        ("tick with nothing new, files opened", "1", str(len(files))),
        ("the same, ms of CPU", "20", f"{statistics.median(idle) * 1000:.1f}"),
        (f"{count} tables, half of them changed, s", "60", f"{all_of_them:.1f}"),
    ]


def seconds(run: Callable[[], object]) -> float:
    """Return how long a call takes by the clock."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def cpu_seconds(run: Callable[[], object]) -> float:
    """Return how much of the processor a call takes."""
    start = time.process_time()
    run()
    return time.process_time() - start


def live(folder: Path, repeat: int) -> list[tuple[str, ...]]:
    """Measure a deployment of real processes on a Spark Connect server that is warm."""
    warehouse = folder / "warehouse"
    table = make_table(warehouse, "lake.orders", days=1)
    with connect_server() as address:
        environment = {"PAIMON_WAREHOUSE": str(warehouse), "SPARK_ADDRESS": address}
        side = HERE / "orchestration_side.py"
        deployment = Deployment(folder / "home", HERE.parent, ["-f", str(side)], environment)
        try:
            deployment.start()
            by_shell = [_by_shell(table, warehouse, address) for _ in range(repeat + 1)]
            deployment.start_daemon()
            commit(table, DAYS[0])
            _until_compacted(table, deployment)  # the sensor's first look
            reached = [_by_sensor(table, deployment, turn) for turn in range(repeat)]
            runs = _seconds_of_runs(deployment)[-repeat:]
        finally:
            deployment.close()
    shell, run = statistics.median(by_shell[1:]), statistics.median(runs)
    return [
        (
            "from commit to compacted snapshot, the slowest, s",
            f"{INTERVAL + 10}",
            f"{max(reached):.1f}",
        ),
        ("of that the run, from its launch to its end, s", "", f"{run:.1f}"),
        ("the same compaction by the command line, s", "", f"{shell:.1f}"),
    ]


def _seconds_of_runs(deployment: Deployment) -> list[float]:
    """Return how long the runs took, the start of their processes included, the oldest first."""
    with deployment.instance() as instance:
        unfinished = dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED])
        wait_for_result(lambda: not instance.get_runs(unfinished), deployment.logs)
        found = [instance.get_run_stats(run.run_id) for run in reversed(instance.get_runs())]
    return [(stats.end_time or 0) - (stats.launch_time or 0) for stats in found]


@contextmanager
def connect_server() -> Iterator[str]:
    """Run a Spark Connect server whose workers find this checkout, and give its address."""
    port = free_port()
    code = (
        "import sys; from pyspark.sql import SparkSession; SparkSession.builder.master('local[2]')"
        ".config('spark.plugins', 'org.apache.spark.sql.connect.SparkConnectPlugin')"
        f".config('spark.connect.grpc.binding.port', {port}).config('spark.ui.enabled', False)"
        ".getOrCreate(); sys.stdin.read()"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": str(HERE.parent),
        "PYSPARK_PYTHON": sys.executable,
        "JAVA_HOME": str(find_java().home),
    }
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for_result(lambda: is_listening(port))
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.communicate()  # its input ends, and so does it


def _until_compacted(table: Table, deployment: Deployment) -> None:
    def compacted() -> bool:
        latest = table.snapshot()
        return latest is not None and latest.commit_kind is CommitKind.COMPACT

    wait_for_result(compacted, deployment.logs, seconds=180)


def _by_sensor(table: Table, deployment: Deployment, turn: int) -> float:
    time.sleep(7 * turn)  # at another moment between two ticks
    commit(table, DAYS[0])
    return seconds(lambda: _until_compacted(table, deployment))


def _by_shell(table: Table, warehouse: Path, address: str) -> float:
    commit(table, DAYS[0])
    code = "from paimon_orch.cli.app import main; main()"
    command = [sys.executable, "-c", code, "compact", str(warehouse), table.identifier]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    return seconds(
        lambda: subprocess.run(
            [*command, "--master", address], env=environment, check=True, capture_output=True
        )
    )


def main(
    tables: Annotated[int, typer.Option(help="sensors in one process")] = 200,
    repeat: Annotated[int, typer.Option(help="how often")] = 3,
    no_live: Annotated[bool, typer.Option("--no-live", help="no processes")] = False,  # noqa: FBT002
) -> None:
    """Run all, and print what was found beside the goals."""
    logging.disable(logging.INFO)
    with tempfile.TemporaryDirectory() as folder:
        rows = ticks(Path(folder) / "ticks", tables, repeat)
        if not no_live:
            (Path(folder) / "live").mkdir()
            rows += live(Path(folder) / "live", repeat)
    show("orchestration", ("what", "goal", "found"), rows)
    console.print("by the clock; Spark is a Connect server that runs already")


if __name__ == "__main__":
    typer.run(main)
