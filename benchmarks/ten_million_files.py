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
from dataclasses import replace
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
        usage = measure_process(
            [sys.executable, __file__, "run", step, executor, str(files), str(report)],
            {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        values: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return values | {"cpu_seconds": usage.cpu_seconds}


def run(step: str, executor: str, files: int, report: Path) -> None:
    """Run a step in this process, and write its memory and its result."""
    from listed_files import ListedFileIO
    from many_files import open_many_files

    table = open_many_files(files=files)
    table = replace(table, io=ListedFileIO(table.paths.root, files))
    result = _STEPS[step](table, _open_executor(executor))
    values = {"driver_mb": _read_peak_mb(os.getpid()), "jvm_mb": _read_jvm_peak_mb()}
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


def _read_peak_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


def _read_jvm_peak_mb() -> float:
    """Return the peak memory of the JVM of this process, or 0 without one."""
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    parents = {}
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")
        except FileNotFoundError:
            continue
        parents[pid] = (int(fields[2].split()[1]), fields[0].partition("(")[2])
    own = os.getpid()
    return max(
        (
            _read_peak_mb(p)
            for p, (parent, name) in parents.items()
            if parent == own and name == "java"
        ),
        default=0.0,
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
