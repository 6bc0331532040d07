"""A soak: many writers, maintainers and kills on one lake, and then a count of every row.

    python benchmarks/soak.py measure [--place local|s3|hdfs] [--minutes 10] [--seed 1] [--store]
    python benchmarks/soak.py draw

``measure`` lets this library (two processes), Java Paimon and pypaimon write tables of all kinds at
once, while the warehouse component in Dagster and the operators of Airflow maintain them, and kills
a random process every few seconds. Then it reads each table with all implementations. It fails if a
row is lost or duplicated. ``--store`` writes the figures to soak.json, from which docs/soak.md is
generated. ``draw`` makes the plots of this page, with matplotlib from the extra ``benchmarks``.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from measurement import HERE, console, show
from performance_results import describe_machine
from soak_lake import FinalCheck, Sampler, create_tables
from soak_places import AIRFLOW, JAVA, PLACES, PYPAIMON, Place
from soak_plots import draw_soaks
from soak_processes import Maintainer, SoakProcess, Writer, kill_at_random, wait_until
from soak_watch import SnapshotWatch
from support.airflow_environment import airflow_python, build_environment, install_package
from support.peers.environments import PeerCommand, PeerUnavailableError, peer_start
from support.peers.peers import Peer
from support.soak_tables import Record, SoakTable, choose_tables, count_rows

from paimon_orch import Catalog

app = typer.Typer(add_completion=False)
RESULTS = HERE / "soak.json"
_WORKER = HERE / "soak_worker.py"
_SAMPLES = 60


@dataclass(kw_only=True)
class Soak:
    """One soak: its settings, its processes and what was left out."""

    place: Place
    folder: Path
    tables: Sequence[SoakTable]
    seed: int
    stop: threading.Event = field(default_factory=threading.Event)
    writers: list[Writer] = field(default_factory=list)
    maintainers: list[Maintainer] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def processes(self) -> list[SoakProcess]:
        """Return all processes that are killed."""
        return [*self.writers, *self.maintainers]

    def prepare(self, peers: Sequence[str]) -> None:
        """Prepare the processes; note which cannot run here."""
        for number in (1, 2):
            self._add_writer(f"paimon_orch {number}", self._our_command("writer"))
        for name in (JAVA, PYPAIMON):
            self._add_peer(name, peers)
        self.maintainers.append(Maintainer("Dagster", self._our_command("dagster"), self.stop))
        if self._can_take_part(AIRFLOW, peers):
            try:
                command = self._airflow_command()
            except PeerUnavailableError as error:
                self.skipped[AIRFLOW] = str(error)
            else:
                self.maintainers.append(Maintainer(AIRFLOW, command, self.stop))

    def _can_take_part(self, name: str, peers: Sequence[str]) -> bool:
        reason = self.place.left_out.get(name, "" if name in peers else "not asked for")
        if reason:
            self.skipped[name] = reason
        return not reason

    def _add_peer(self, name: str, peers: Sequence[str]) -> None:
        if self._can_take_part(name, peers):
            try:
                self._add_writer(name, peer_start(name), self.place.peers[name])
            except PeerUnavailableError as error:
                self.skipped[name] = str(error)

    def _add_writer(
        self, name: str, start: PeerCommand, warehouse: Mapping[str, str] | None = None
    ) -> None:
        number = len(self.writers) + 1
        self.writers.append(
            Writer(
                name,
                start,
                self.stop,
                number=number,
                warehouse=warehouse or {},
                tables=[t for t in self.tables if t.writers is None or number <= t.writers],
                seed=self.seed,
                deletes=name != PYPAIMON,  # it deletes by row ids only
            )
        )

    def _our_command(self, role: str) -> PeerCommand:
        arguments = (str(_WORKER), role, self.place.root, json.dumps(dict(self.place.options)))
        home = self.folder / "dagster"
        home.mkdir(exist_ok=True)
        environment = {**os.environ, "PYTHONPATH": str(HERE.parent), "DAGSTER_HOME": str(home)}
        return PeerCommand((sys.executable, "-P", *arguments), environment)

    def _airflow_command(self) -> PeerCommand:
        site = self.folder / "site"
        install_package(site)
        connection = {"conn_type": "paimon", "host": self.place.root}
        environment = build_environment(self.folder / "airflow", site)
        environment["AIRFLOW_CONN_PAIMON_DEFAULT"] = json.dumps(connection)
        arguments = ("-P", str(_WORKER), "airflow", self.place.root, "{}")
        return PeerCommand((str(airflow_python()), *arguments), environment)

    def run_watched(self, seconds: float, kill_every: float, sampler: Sampler) -> dict[str, int]:
        """Run, and return the number of snapshots that a rename replaced, by table."""
        if not self.place.has_unsafe_renames:
            self.run(seconds, kill_every, sampler)
            return {}
        watch = SnapshotWatch(self.place.root, self.tables)
        watch.start()
        try:
            self.run(seconds, kill_every, sampler)
        finally:
            watch.close()
        return dict(watch.replaced)

    def run(self, seconds: float, kill_every: float, sampler: Sampler) -> None:
        """Write, maintain and kill for some seconds."""
        deadline = time.monotonic() + seconds
        helpers = [
            threading.Thread(
                target=kill_at_random,
                args=(self.processes, self.stop),
                kwargs={"every": kill_every, "seed": self.seed},
            ),
            threading.Thread(target=self._sample, args=(sampler, seconds / _SAMPLES)),
        ]
        threads = [*self.processes, *helpers]
        for thread in threads:
            thread.start()
        wait_until(deadline, self.stop)
        for thread in threads:
            thread.join()

    def _sample(self, sampler: Sampler, every: float) -> None:
        while not self.stop.wait(every):
            sampler.sample()

    @contextmanager
    def readers(self) -> Iterator[list[Peer]]:
        """Start the peers that read the tables in the end."""
        names = [writer.name for writer in self.writers if writer.name in self.place.peers]
        with ExitStack() as stack:
            peers = [Peer(name) for name in names]
            for peer in peers:
                stack.callback(peer.close)
            yield peers


def describe(soak: Soak, sampler: Sampler, checks: Mapping[str, Record]) -> dict[str, Any]:
    """Return the part of the report about processes and tables."""
    writers = {
        writer.name: {
            "acknowledged_operations": sum(_count_acknowledged(writer).values()),
            "acknowledged_rows": sum(
                count_rows(history.operations) for history in writer.histories.values()
            ),
            "unknown_operations": sum(
                not each.is_acknowledged
                for history in writer.histories.values()
                for each in history.operations
            ),
            "kills": writer.kills,
            "conflicts": writer.conflicts,
            "errors": dict(writer.errors.most_common(10)),
            "refused_tables": writer.refused,
        }
        for writer in soak.writers
    }
    maintainers = {
        each.name: {
            "started_rounds": each.turns,
            "finished_rounds": each.finished,
            "actions": each.actions,
            "kills": each.kills,
            "conflicts": each.conflicts,
            "errors": dict(each.errors.most_common(10)),
        }
        for each in soak.maintainers
    }
    tables = {
        table.name: {
            "kind": table.kind,
            "acknowledged_rows": sum(
                count_rows(writer.histories[table.name].operations)
                for writer in soak.writers
                if table.name in writer.histories
            ),
            **checks[table.name],
            "samples": sampler.samples[table.name],
        }
        for table in soak.tables
    }
    return {
        "skipped": soak.skipped,
        "writers": writers,
        "maintainers": maintainers,
        "tables": tables,
        "missed_samples": sampler.missed,
    }


def _count_acknowledged(writer: Writer) -> dict[str, int]:
    return {
        name: sum(each.is_acknowledged for each in history.operations)
        for name, history in writer.histories.items()
    }


def run_soak(
    *,
    place: str,
    seconds: float,
    seed: int,
    folder: Path,
    table_count: int | None = None,
    kill_every: float = 6.0,
    peers: Sequence[str] = (JAVA, PYPAIMON, AIRFLOW),
) -> dict[str, Any]:
    """Run a soak in a folder, and return its report."""
    with PLACES[place](folder) as opened:
        catalog = Catalog(opened.root, **opened.options)
        soak = Soak(place=opened, folder=folder, tables=list(choose_tables(table_count)), seed=seed)
        create_tables(catalog, soak.tables)
        soak.prepare(peers)
        sampler = Sampler(catalog, soak.tables)
        start = time.monotonic()
        replaced = soak.run_watched(seconds, kill_every, sampler)
        duration = time.monotonic() - start
        with soak.readers() as readers:
            final = FinalCheck(catalog, opened, readers, replaced)
            checks = {}
            for table in soak.tables:
                histories = [
                    w.histories[table.name] for w in soak.writers if table.name in w.histories
                ]
                checks[table.name] = final.run(table, histories)
        head = {"place": opened.title, "seed": seed, "seconds": round(duration)}
        return head | {"measured": describe_machine()} | describe(soak, sampler, checks)


def find_problems(report: Mapping[str, Any]) -> list[str]:
    """Return a line for each reading with lost or duplicated rows, and for each finding."""
    problems = []
    for name, table in report["tables"].items():
        for reader, result in table["readers"].items():
            if result.get("lost") or result.get("duplicated") or "error" in result:
                problems.append(f"{name}, read by {reader}: {json.dumps(result)}")
        problems += [f"{name}: {finding}" for finding in table["findings"]]
    return problems


@app.command()
def measure(  # noqa: PLR0913 - options
    *,
    place: Annotated[str, typer.Option(help="local, s3 or hdfs.")] = "local",
    minutes: Annotated[float, typer.Option(help="Time of the writes.")] = 10.0,
    seed: Annotated[int, typer.Option(help="Seed of the operations and the kills.")] = 1,
    tables: Annotated[int | None, typer.Option(help="Number of tables; all by default.")] = None,
    kill_every: Annotated[float, typer.Option(help="Mean seconds between kills.")] = 6.0,
    folder: Annotated[Path | None, typer.Option(help="Keeps the lake in this folder.")] = None,
    output: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
    store: Annotated[bool, typer.Option("--store", help="Write the figures to soak.json.")] = False,
) -> None:
    """Run a soak, and fail if a row is lost or duplicated."""
    with tempfile.TemporaryDirectory() as temporary:
        report = run_soak(
            place=place,
            seconds=minutes * 60,
            seed=seed,
            folder=folder or Path(temporary),
            table_count=tables,
            kill_every=kill_every,
        )
    show_report(report)
    if output:
        output.write_text(json.dumps(report), encoding="utf-8")
    if store:
        stored = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
        lines = (f"{json.dumps(k)}: {json.dumps(v)}" for k, v in (stored | {place: report}).items())
        RESULTS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    if problems := find_problems(report):
        console.print("\n".join(problems), markup=False)
        sys.exit(1)


def show_report(report: Mapping[str, Any]) -> None:
    """Print the figures of the processes."""
    rows = [
        (
            name,
            str(each.get("acknowledged_rows", each.get("actions"))),
            str(each["kills"]),
            str(each["conflicts"]),
            str(sum(each["errors"].values())),
        )
        for name, each in (report["writers"] | report["maintainers"]).items()
    ]
    columns = ("process", "rows or actions", "kills", "conflicts", "other errors")
    show(f"{report['place']}, seed {report['seed']}, {report['seconds']} s", columns, rows)
    for name, reason in report["skipped"].items():
        console.print(f"Skipped {name}: {reason}", markup=False)


@app.command()
def draw() -> None:
    """Draw the plots of docs/soak.md."""
    for path in draw_soaks(json.loads(RESULTS.read_text(encoding="utf-8"))):
        console.print(f"wrote {path}")


if __name__ == "__main__":
    app()
