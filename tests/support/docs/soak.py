"""Generates docs/soak.md from the figures that benchmarks/soak.py stored.

PYTHONPATH=tests:. python -m support.docs.soak > docs/soak.md
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "benchmarks" / "soak.json"

_HEAD = """\
# Soak

This page has the figures of `benchmarks/soak.py`. `make reference` generates it, and
`python benchmarks/soak.py draw` draws the plots.

In a soak, several processes write tables of all kinds at the same time: two of paimon_orch, and one
each of Java Paimon and pypaimon. Two others maintain the tables: the [warehouse
component](dagster.md#all-tables-of-a-catalog) in Dagster, and the [operators](airflow.md) of
Airflow. A random process is killed by SIGKILL every few seconds, and started again.

Each writer has keys of its own, so the rows that its operations leave are known. An operation is
**acknowledged** if its process answered. Any other one, for example that of a killed writer, must be
in the table as a whole or not at all. In the end, each implementation reads all tables, before and
after a full compaction:

- A row is **lost** if an acknowledged operation wrote it and the table does not have it, or has
  older values.
- A row is **duplicated** if the table has it twice, or has it although it was deleted or never
  written. A commit that is applied twice also changes the sums of the merge engine `aggregation`.
- A row is **replaced** if its snapshot was: on a local disk, Java and pypaimon check that a snapshot
  does not exist, and then rename a file to its name ([concurrent
  commits](how-to/flink-writes.md#concurrent-commits)). The soak watches these renames. No more
  operations may be absent than snapshots were replaced. In HDFS a rename replaces no file.

All files are then checked, by Java's classes too, and the files of killed processes are removed. The
plots show what a scan opens during the soak.

```sh
python benchmarks/soak.py measure --place local --minutes 60 --seed 2
```

`make test-all` runs a soak of 10 minutes, `make test-services` a short one with fewer tables, and a
weekly job one of four hours.
"""


def page() -> str:
    """Return the page."""
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    return "\n".join([_HEAD, *(line for key in results for line in _section(key, results[key]))])


def _section(key: str, report: Mapping[str, Any]) -> Iterator[str]:
    writers, maintainers = report["writers"], report["maintainers"]
    kills = sum(each["kills"] for each in [*writers.values(), *maintainers.values()])
    results = [r for table in report["tables"].values() for r in table["readers"].values()]
    rows = sum(each["acknowledged_rows"] for each in writers.values())
    lost, duplicated, replaced = (
        sum(_worst(table, name) for table in report["tables"].values())
        for name in ("lost", "duplicated", "replaced")
    )
    failed = sum("error" in each for each in results)
    commits = sum(table["commits"] for table in report["tables"].values())
    findings = sum(len(table["findings"]) for table in report["tables"].values())
    yield f"## {report['place']}"
    yield ""
    yield (
        f"{report['seconds'] / 60:.0f} minutes, seed {report['seed']}, {len(report['tables'])} tables: "
        f"{rows:,} rows acknowledged, {lost:,} lost, {duplicated:,} duplicated, {replaced:,} replaced; "
        f"{commits:,} commits, "
        f"{kills:,} kills; {len(results):,} readings, of which {failed} failed; {findings:,} findings "
        "of the checks."
    )
    yield f"{report['measured']}."
    yield ""
    yield from _writers(writers)
    yield from _maintainers(maintainers)
    yield from (f"Left out: {name}: {reason}.\n" for name, reason in report["skipped"].items())
    yield from _tables(report["tables"])
    yield f"![Files and sorted runs of each table over time](images/soak-{key}.svg)"
    yield ""


def _writers(writers: Mapping[str, Any]) -> Iterator[str]:
    yield from _head("writer", "operations", "rows", "not acknowledged", "conflicts", "kills")
    for name, each in writers.items():
        yield _line(
            name,
            each["acknowledged_operations"],
            each["acknowledged_rows"],
            each["unknown_operations"],
            each["conflicts"],
            each["kills"],
        )
    yield ""
    yield from _errors(writers)


def _maintainers(maintainers: Mapping[str, Any]) -> Iterator[str]:
    yield from _head("maintainer", "rounds", "finished rounds", "actions", "conflicts", "kills")
    for name, each in maintainers.items():
        figures = ("started_rounds", "finished_rounds", "actions", "conflicts", "kills")
        yield _line(name, *(each[figure] for figure in figures))
    yield ""
    yield from _errors(maintainers)


def _errors(processes: Mapping[str, Any]) -> Iterator[str]:
    """Yield the errors that are neither conflicts nor kills."""
    for name, each in processes.items():
        for text, count in each["errors"].items():
            yield f"- {name}, {count} times: `{text.replace('`', '')}`"
        for table, reason in each.get("refused_tables", {}).items():
            yield f"- {name} does not write `{table}`: `{reason.replace('`', '')}`"
    if any(each["errors"] for each in processes.values()):
        yield ""


def _tables(tables: Mapping[str, Any]) -> Iterator[str]:
    yield from _head(
        "table", "kind", "rows acknowledged", "rows in the end", "lost", "duplicated", "replaced", "commits",
        "files of a scan: mean, maximum", "sorted runs: mean, maximum",
    )  # fmt: skip
    for name, table in tables.items():
        files, runs = ([sample[n] for sample in table["samples"]] for n in (1, 2))
        yield _line(
            name,
            table["kind"],
            table["acknowledged_rows"],
            table["readers"]["us"].get("rows", 0),
            *(_worst(table, reading) for reading in ("lost", "duplicated", "replaced")),
            table["commits"],
            f"{fmean(files):.0f}, {max(files)}" if files else "",
            f"{fmean(runs):.0f}, {max(runs)}" if any(runs) else "",
        )
    yield ""


def _worst(table: Mapping[str, Any], name: str) -> int:
    """Return a figure of the reader that found most."""
    return max(int(reading.get(name, 0)) for reading in table["readers"].values())


def _head(*names: str) -> Iterator[str]:
    yield _line(*names)
    yield _line(*("---" for _ in names))


def _line(*cells: object) -> str:
    texts = (f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in cells)
    return f"| {' | '.join(texts)} |"


if __name__ == "__main__":
    sys.stdout.write(page())
