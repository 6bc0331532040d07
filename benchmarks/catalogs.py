"""Catalogs: requests, file operations and wall-clock time of common operations, for each kind.

    python benchmarks/catalogs.py [--tables 10000] [--repeat 21]

The servers run on this machine, so a request takes a millisecond or two; over a network, the number
of requests decides. JDBC and Hive take locks. Goals: a commit asks a REST server for the newest
snapshot once per attempt, and a tick of the sensor with nothing new is one request.

Prints a table in Markdown. Creating the tables of the listing takes some minutes.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import dagster as dg
import pyarrow as pa
import sqlalchemy as sa
import typer
from measurement import console
from support.catalogs.hive_metastore import run_hive_metastore
from support.catalogs.jdbc_databases import (
    create_postgres_database,
    create_sqlite_database,
    run_postgres,
)
from support.catalogs.rest_server import JAVA_2_0, run_rest_server
from support.catalogs.round_trips import count_round_trips
from support.dagster.ticks import SensorTicks

from paimon_orch import Catalog
from paimon_orch.catalog.identifier import TableIdentifier
from paimon_orch.catalog.jdbc.jdbc_backend import JdbcBackend
from paimon_orch.catalog.jdbc.jdbc_tables import TABLES
from paimon_orch.dagster import PaimonCatalogResource, build_latest_snapshot_sensor
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact

_COLUMNS = "k BIGINT NOT NULL, v STRING"
_ROWS = pa.table({"k": pa.array(range(100), pa.int64()), "v": [f"v{n}" for n in range(100)]})
_LOCKED = {"lock.enabled": "true"}
_THREADS = 4


@dataclass(slots=True)
class Measured:
    """An operation of one catalog."""

    requests: int
    files: int
    seconds: list[float] = field(default_factory=list)

    def format(self, baseline: Measured) -> str:
        """Return the cell of the table; the ratio compares medians with the file system."""
        counts = [f"{self.requests} requests"] if self.requests else []
        counts += [f"{self.files} file operations"] if self.files else []
        median = statistics.median(self.seconds)
        ratio = median / statistics.median(baseline.seconds)
        suffix = "" if self is baseline else f" ({ratio:.1f})"
        return f"{', '.join(counts)}; {median * 1000:.1f} ms{suffix}"


@contextmanager
def open_catalogs(folder: Path) -> Iterator[Mapping[str, dict[str, str]]]:
    """Start the servers; yield the options of the catalogs by their names."""
    with ExitStack() as servers:
        postgres = servers.enter_context(run_postgres())
        database = servers.enter_context(create_postgres_database(postgres))
        sqlite = create_sqlite_database(folder / "catalog.db")
        hive = servers.enter_context(run_hive_metastore("3.1", folder / "hive"))
        rest = servers.enter_context(run_rest_server(JAVA_2_0, folder / "served"))
        yield {
            "file system": {"metastore": "filesystem", "warehouse": str(folder / "files")},
            "JDBC, SQLite": sqlite.options(folder / "sqlite") | _LOCKED,
            "JDBC, PostgreSQL": database.options(folder / "postgresql") | _LOCKED,
            "Hive 3.1": hive.options(folder / "in-hive") | _LOCKED,
            "REST": {name: str(value) for name, value in rest.options.items()},
        }


class Subject:
    """A catalog with one table, and the operations that are measured."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options: dict[str, Any] = dict(options)
        self.catalog = Catalog(**self.options)
        self.table = self.catalog.create_table(
            "db.t", _COLUMNS, primary_key=["k"], options={"bucket": "1"}
        )
        self.table.upsert(_ROWS)
        self.ticks = SensorTicks(
            build_latest_snapshot_sensor("db.t"),
            PaimonCatalogResource(
                metastore=self.options["metastore"],
                warehouse=self.options["warehouse"],
                catalog_options={
                    k: v for k, v in self.options.items() if k not in ("metastore", "warehouse")
                },
            ),
            dg.DagsterInstance.ephemeral(),
        )

    def load(self) -> None:
        """Open the catalog and load a table."""
        Catalog(**self.options).table("db.t")

    def upsert(self) -> None:
        """Write 100 rows in one commit."""
        self.table.upsert(_ROWS)

    def compact(self) -> None:
        """Plan, run and commit a full compaction."""
        assert compact(self.table, InProcessExecutor(), strategy="full").snapshot_id

    def tick(self) -> None:
        """Evaluate the sensor after its last tick."""
        assert "was already handled" in self.ticks.skip_message()

    def prepare_tick(self) -> None:
        """Evaluate the sensor until nothing is new."""
        for _ in range(2):
            self.ticks.evaluate()

    def create_tables(self, count: int) -> None:
        """Create the tables of the listing, without the checks of `Catalog.create_table`."""
        schema = self.table.load().schema
        names = [f"table_{number:05d}" for number in range(count)]
        self.catalog.create_database("many", if_not_exists=True)
        if isinstance(self.catalog.backend, JdbcBackend):  # a listing reads only these rows
            rows = [
                {"catalog_key": "jdbc", "database_name": "many", "table_name": name}
                for name in names
            ]
            self.catalog.backend.database.run_transaction(
                lambda connection: connection.execute(sa.insert(TABLES), rows)
            )
            return

        def create(name: str) -> None:
            identifier = TableIdentifier.parse(f"many.{name}")
            assert self.catalog.backend.create_table(identifier, schema, None)

        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(create, names))

    def list_tables(self, count: int) -> None:
        """List all tables of the large database."""
        assert len(self.catalog.tables("many")) == count


def measure(run: Callable[[], None]) -> Measured:
    """Count the round trips of one run."""
    with count_round_trips() as trips:
        run()
    return Measured(len(trips.requests), len(trips.files))


def measure_alternately(
    runs: Mapping[str, Callable[[], None]],
    repeat: int,
    before: Mapping[str, Callable[[], None]] | None = None,
) -> dict[str, Measured]:
    """Measure an operation of all catalogs, one after the other, several times."""
    results = dict[str, Measured]()
    for number in range(repeat + 1):
        for name, run in runs.items():
            if before is not None:
                before[name]()
            if not number:
                results[name] = measure(run)
                continue
            start = time.perf_counter()
            run()
            results[name].seconds.append(time.perf_counter() - start)
    return results


def main(
    tables: Annotated[int, typer.Option(help="Tables of the listing.")] = 10_000,
    repeat: Annotated[int, typer.Option(help="Runs of each operation.")] = 21,
) -> None:
    """Measure all catalogs and print a table in Markdown."""
    os.environ.setdefault("PAIMON_ORCH_HOME", tempfile.gettempdir())
    with tempfile.TemporaryDirectory() as root, open_catalogs(Path(root)) as catalogs:
        subjects = {name: Subject(options) for name, options in catalogs.items()}
        upserts = {name: subject.upsert for name, subject in subjects.items()}
        rows = {
            "load a table": measure_alternately({n: s.load for n, s in subjects.items()}, repeat),
            "write and commit 100 rows": measure_alternately(upserts, repeat),
            "compact and commit": measure_alternately(
                {n: s.compact for n, s in subjects.items()}, repeat, upserts
            ),
        }
        for subject in subjects.values():
            subject.prepare_tick()
        rows["tick of the sensor, nothing new"] = measure_alternately(
            {n: s.tick for n, s in subjects.items()}, repeat
        )
        _print_markdown(list(subjects), rows)
        for name, subject in subjects.items():
            start = time.perf_counter()
            subject.create_tables(tables)
            console.print(f"{name}: created {tables} tables in {time.perf_counter() - start:.0f} s")
        rows[f"list {tables:,} tables"] = measure_alternately(
            {n: lambda s=s: s.list_tables(tables) for n, s in subjects.items()},  # type: ignore[misc]
            min(repeat, 5),
        )
        _print_markdown(list(subjects), dict(list(rows.items())[-1:]))


def _print_markdown(names: list[str], rows: Mapping[str, Mapping[str, Measured]]) -> None:
    """Print requests, file operations, milliseconds, and the ratio to the file system."""
    typer.echo(f"| | {' | '.join(names)} |")
    typer.echo(f"| --- |{' --- |' * len(names)}")
    for operation, results in rows.items():
        baseline = results[names[0]]
        cells = [results[name].format(baseline) for name in names]
        typer.echo(f"| {operation} | {' | '.join(cells)} |")


if __name__ == "__main__":
    typer.run(main)
