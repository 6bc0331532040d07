"""Maintenance of a table of ten million files: CPU seconds, and the memory of each process.

    python benchmarks/ten_million_files.py [--files 10000000] [--step compact|check|orphans] [--executor spark|local]

The table has manifests only (``many_files.py``); listings of its data files are computed
(``listed_files.py``), so that a check and a search for orphan files find all of them.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

FILES = 10_000_000
COLUMNS = ("step", "executor", "CPU s", "driver MB", "JVM MB", "result")


def measure(step: str, executor: str, files: int) -> dict[str, Any]:
    """Run a step in a process of its own."""
    from measurement import measure_process

    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        measure_process(
            [sys.executable, __file__, "run", step, executor, str(files), str(report)],
            {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        values: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return values


def run(step: str, executor: str, files: int, report: Path) -> None:
    """Run a step in this process, and write its memory and its result."""
    from listed_files import ListedFileIO
    from many_files import open_many_files

    table = open_many_files(files=files)
    table = replace(table, io=ListedFileIO(table.paths.root, files))
    result = _STEPS[step](table, _open_executor(executor))
    processes = _read_processes()
    values = {
        "cpu_seconds": sum(process.cpu_seconds for process in processes.values()),
        "driver_mb": processes[os.getpid()].peak_mb,
        "jvm_mb": max((p.peak_mb for p in processes.values() if p.name == "java"), default=0.0),
    }
    report.write_text(json.dumps(values | {"result": result}), encoding="utf-8")


def _open_executor(name: str) -> Any:
    from paimon_orch.cli.common import build_executor
    from paimon_orch.steps.common.executor_choice import ExecutorKind

    kind = ExecutorKind(name)
    return build_executor(kind, "local[2]" if kind is ExecutorKind.SPARK else None)


def _plan_compaction(table: Any, executor: Any) -> str:
    from paimon_orch.steps.compaction.compact import CompactRequest, plan

    planned = plan(table, CompactRequest(), executor=executor)
    return f"{planned.buckets:,} buckets, {len(planned.inputs):,} files"


def _check(table: Any, executor: Any) -> str:
    from paimon_orch.steps.inspection.check_table import check

    report = check(table, executor=executor)
    return f"{report.data_files:,} files, {len(report.findings)} findings, first: {report.findings[:1]}"


def _plan_orphans(table: Any, executor: Any) -> str:
    from paimon_orch.steps.cleanup.remove_orphan_files import RemoveOrphanFilesRequest, plan

    planned = plan(table, RemoveOrphanFilesRequest(), executor=executor)
    return f"{planned.scanned:,} files, {len(planned.files)} orphans"


_STEPS: Mapping[str, Callable[[Any, Any], str]] = {
    "compact": _plan_compaction,
    "check": _check,
    "orphans": _plan_orphans,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Process:
    parent: int
    name: str
    cpu_seconds: float
    """Of the process and of its children that have ended."""
    peak_mb: float


def _read_processes() -> dict[int, _Process]:
    """Return this process and all processes below it.

    The workers of PySpark are children of its daemon, which does not wait for them, so the CPU time
    of ended processes lacks theirs.
    """
    found: dict[int, _Process] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with suppress(FileNotFoundError, ProcessLookupError):
                found[int(path.name)] = _read_process(path)
    below = {os.getpid()}
    while True:
        children = {pid for pid, process in found.items() if process.parent in below}
        if children <= below:
            return {pid: found[pid] for pid in below}
        below |= children


def _read_process(path: Path) -> _Process:
    before, _, after = (path / "stat").read_text(encoding="utf-8").rpartition(")")
    fields = after.split()
    peak = 0
    for line in (path / "status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            peak = int(line.split()[1])
    return _Process(
        parent=int(fields[1]),
        name=before.partition("(")[2],
        cpu_seconds=sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK"),
        peak_mb=peak / 1024,
    )


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command(name="run", hidden=True)(run)


@app.command()
def main(
    files: Annotated[int, typer.Option(help="Number of data files.")] = FILES,
    step: Annotated[str, typer.Option(help="Only this step: compact, check or orphans.")] = "",
    executor: Annotated[str, typer.Option(help="Only this executor: spark or local.")] = "",
) -> None:
    """Measure and print."""
    from many_files import open_many_files
    from measurement import show

    open_many_files(files=files)
    rows = []
    for name in [step] if step else _STEPS:
        for kind in [executor] if executor else ("spark", "local"):
            each = measure(name, kind, files)
            numbers = (each["cpu_seconds"], each["driver_mb"], each["jvm_mb"])
            rows.append((name, kind, *(f"{n:,.0f}" for n in numbers), each["result"]))
    show(f"A table of {files:,} files", COLUMNS, rows)


if __name__ == "__main__":
    app()
