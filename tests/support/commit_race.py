"""Processes that commit to one table or create one file at the same time."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier
from typing import Any

import pyarrow as pa

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.storage import resolve_warehouse

PROCESSES, ROUNDS = 8, 20
_TIMEOUT_SECONDS = 200
RoundWinners = list[tuple[int, int]]


def count_winners(root: str, options: dict[str, Any]) -> Counter[int]:
    """Create each file in several processes at the same time; count the winners per file."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(PROCESSES), context.Queue()
    started = [
        context.Process(target=_create, args=(root, options, number, barrier, results))
        for number in range(PROCESSES)
    ]
    for process in started:
        process.start()
    won = [entry for _ in started for entry in results.get(timeout=_TIMEOUT_SECONDS)]
    for process in started:
        process.join()
    io = resolve_warehouse(root, options)[0]
    for number, winner in won:
        assert io.read_bytes(f"{root}/snapshot-{number}") == _content(winner)
    return Counter(number for number, _ in won)


def _create(
    root: str, options: dict[str, Any], process: int, barrier: Barrier, results: Any
) -> None:
    io = resolve_warehouse(root, options)[0]
    won: RoundWinners = []
    for number in range(ROUNDS):
        barrier.wait(timeout=_TIMEOUT_SECONDS)
        if io.create(f"{root}/snapshot-{number}", _content(process)):
            won.append((number, process))
    results.put(won)


def _content(process: int) -> bytes:
    return f"written by {process} ".encode() * 100


def append_concurrently(
    root: str, options: dict[str, Any], processes: int, appends: int
) -> list[tuple[int, int]]:
    """Append rows (process, number) to ``db.t`` in processes, one commit each; return the rows."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(processes)
    started = [
        context.Process(target=_append, args=(root, options, number, appends, barrier))
        for number in range(processes)
    ]
    for process in started:
        process.start()
    for process in started:
        process.join()
    assert [process.exitcode for process in started] == [0] * processes
    return [(process, number) for process in range(processes) for number in range(appends)]


def _append(
    root: str, options: dict[str, Any], process: int, appends: int, barrier: Barrier
) -> None:
    table = Catalog(root, **options).table("db.t")
    barrier.wait(timeout=_TIMEOUT_SECONDS)
    for number in range(appends):
        table.append(pa.table({"process": [process], "number": [number]}))


def start_append(uri: str, options: dict[str, Any], number: int) -> BaseProcess:
    """Start a process that appends the row (0, number) to ``db.t``."""
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_append_row, args=(uri, options, number))
    process.start()
    return process


def _append_row(uri: str, options: dict[str, Any], number: int) -> None:
    table = Catalog(uri, **options).table("db.t")
    table.append(pa.table({"process": [0], "number": [number]}))
