"""Processes that commit to one table or create one file at the same time."""

from __future__ import annotations

import multiprocessing
import sys
from collections import Counter
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier, Event
from tempfile import TemporaryDirectory
from typing import Any

import fsspec
import pyarrow as pa

from paimon_orch.catalog.catalog import Catalog
from paimon_orch.errors import CommitOutcomeUnknownError, StorageError
from paimon_orch.storage import resolve_warehouse

PROCESSES, ROUNDS = 8, 20
_TIMEOUT_SECONDS = 200
_OBJECT_STORES = ("abfs:", "gs:", "s3:")
_CONTEXT = multiprocessing.get_context("spawn")
RoundWinners = list[tuple[int, int]]


def start_race(count: int, run: Callable[..., None], *arguments: object) -> BaseProcess:
    """Call a function with 0, 1, ... and arguments, each in a process.

    Return a process that ends after them, with the number of those that failed.
    """
    parent = _CONTEXT.Process(target=_race, args=(count, run, arguments))
    parent.start()
    return parent


def _race(count: int, run: Callable[..., None], arguments: tuple[object, ...]) -> None:
    # The imports of a commit take longer than a race, so this process has them before it forks.
    for uri in arguments:
        if isinstance(uri, str) and uri.startswith(_OBJECT_STORES):
            fsspec.get_filesystem_class(uri.partition(":")[0])
    with TemporaryDirectory() as warehouse:
        table = Catalog(warehouse).create_table("db.t", "number BIGINT")
        table.append(pa.table({"number": [0]}))
    context = multiprocessing.get_context("fork")
    racers = [context.Process(target=run, args=(number, *arguments)) for number in range(count)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    sys.exit(sum(racer.exitcode != 0 for racer in racers))


def count_winners(root: str, options: dict[str, Any]) -> Counter[int]:
    """Create each file in several processes at the same time; count the winners per file."""
    barrier, results = _CONTEXT.Barrier(PROCESSES), _CONTEXT.Queue()
    race = start_race(PROCESSES, _create, root, options, barrier, results)
    won = [entry for _ in range(PROCESSES) for entry in results.get(timeout=_TIMEOUT_SECONDS)]
    race.join()
    io = resolve_warehouse(root, options)[0]
    for number, winner in won:
        assert io.read_bytes(f"{root}/snapshot-{number}") == _content(winner)
    return Counter(number for number, _ in won)


def _create(
    process: int, root: str, options: dict[str, Any], barrier: Barrier, results: Any
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
    barrier = _CONTEXT.Barrier(processes)
    race = start_race(processes, _append, root, options, appends, barrier)
    race.join()
    assert race.exitcode == 0
    return [(process, number) for process in range(processes) for number in range(appends)]


def _append(
    process: int, root: str, options: dict[str, Any], appends: int, barrier: Barrier
) -> None:
    table = Catalog(root, **options).table("db.t")
    barrier.wait(timeout=_TIMEOUT_SECONDS)
    for number in range(appends):
        table.append(pa.table({"process": [process], "number": [number]}))


Outcome = tuple[tuple[int, int], str]
"""A row (process, number), and what its writer was told: `committed`, `unknown` or `failed`."""


def append_while(act: Callable[[], None], root: str, options: dict[str, Any]) -> list[Outcome]:
    """Append to ``db.t`` in eight processes, one commit a row, until ``act`` has ended."""
    begins, ends, results = _CONTEXT.Barrier(PROCESSES + 1), _CONTEXT.Event(), _CONTEXT.Queue()
    race = start_race(PROCESSES, _append_until, root, options, begins, ends, results)
    begins.wait(timeout=_TIMEOUT_SECONDS)
    try:
        act()
    finally:
        ends.set()
    outcomes = [each for _ in range(PROCESSES) for each in results.get(timeout=_TIMEOUT_SECONDS)]
    race.join()
    return outcomes


def _append_until(
    process: int, root: str, options: dict[str, Any], begins: Barrier, ends: Event, results: Any
) -> None:
    table, outcomes = Catalog(root, **options).table("db.t"), list[Outcome]()
    begins.wait(timeout=_TIMEOUT_SECONDS)
    while not ends.is_set():
        row, told = (process, len(outcomes)), "committed"
        try:
            table.append(pa.table({"process": [row[0]], "number": [row[1]]}))
        except CommitOutcomeUnknownError:
            told = "unknown"
        except StorageError:
            told = "failed"
        outcomes.append((row, told))
    results.put(outcomes)


def start_append(uri: str, options: dict[str, Any], number: int) -> BaseProcess:
    """Start a process that appends the row (0, number) to ``db.t``."""
    process = _CONTEXT.Process(target=_append_row, args=(uri, options, number))
    process.start()
    return process


def _append_row(uri: str, options: dict[str, Any], number: int) -> None:
    table = Catalog(uri, **options).table("db.t")
    table.append(pa.table({"process": [0], "number": [number]}))
