"""Processes that write, compact and maintain one table concurrently and check invariants."""

from __future__ import annotations

import multiprocessing
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier

from support.tables import rows_of, table_of

from paimon_orch.errors import MissingFileError, NotFoundError, TransientError
from paimon_orch.steps.cleanup.remove_orphan_files import remove_orphan_files
from paimon_orch.steps.common.executor import InProcessExecutor
from paimon_orch.steps.compaction.compact import compact
from paimon_orch.steps.expiration.expire_snapshots import expire_snapshots
from paimon_orch.table.table import Table

KEYS = 10  # number of keys that each of the two writers writes
Role = Callable[[Table, int], None]
Report = tuple[str, int, list[str]]


def write(writer: int, table: Table, turn: int) -> None:
    """Set every key of this writer to the number of the turn; each writer has its own keys."""
    table.upsert(table_of("k v", [(KEYS * writer + k, turn) for k in range(KEYS)]))


def compact_once(table: Table, turn: int) -> None:
    compact(table, InProcessExecutor(), strategy="full" if turn % 3 == 0 else "minor")


def expire(table: Table, turn: int) -> None:
    expire_snapshots(table, retain_max=6, retain_min=3, older_than=0)


def remove_orphans(before: float, table: Table, turn: int) -> None:
    """Remove orphans older than the start; only their age protects files that are being written."""
    remove_orphan_files(table, older_than=int(before * 1000))


def tag(table: Table, turn: int) -> None:
    name = f"t{turn % 3}"
    if name in table.tags.names():
        assert len(rows_of(table, tag=name)) == 2 * KEYS
        table.tags.delete(name)
    table.tags.create(name)
    assert len(rows_of(table, tag=name)) == 2 * KEYS


def read(table: Table, turn: int) -> None:
    """Read the newest snapshot, and check that all keys of a writer have the same number."""
    newest = table.stores.snapshots.latest()
    assert newest is not None
    try:
        rows = rows_of(table, snapshot_id=newest.id)
    except (MissingFileError, NotFoundError, FileNotFoundError):
        is_retained = (table.stores.snapshots.earliest_id() or 0) <= newest.id
        assert not is_retained, f"snapshot {newest.id} is kept and cannot be read"
        return
    for first in (0, KEYS):
        values = {v for k, v in rows if first <= k < first + KEYS}
        assert len(values) == 1, f"snapshot {newest.id} is torn: {rows}"


def roles(before: float) -> dict[str, Role]:
    """Return a function for each role; orphans must be older than a time in epoch seconds."""
    return {
        "write 0": partial(write, 0),
        "write 1": partial(write, 1),
        "pack": compact_once,
        "expire": expire,
        "clean": partial(remove_orphans, before),
        "tag": tag,
        "read": read,
    }


def write_initial_rows(table: Table) -> None:
    """Write the keys of both writers."""
    for _ in range(3):
        table.upsert(table_of("k v", [(k, -1) for k in range(2 * KEYS)]))


def repeat_role(name: str, role: Role, table: Table, seconds: float) -> tuple[int, list[str]]:
    """Repeat a role for some seconds, until it had a turn; return the turns and the problems."""
    turn, problems = 0, list[str]()
    until = time.monotonic() + seconds
    while time.monotonic() < until or not (turn or problems):
        try:
            role(table, turn)
            turn += 1
        except (TransientError, NotFoundError, MissingFileError) as error:
            if name.startswith(("write", "read")):
                problems.append(f"{name}: {error}")
        except BaseException:  # noqa: BLE001 - reported to the test
            problems.append(f"{name}: {traceback.format_exc()}")
            break
    return turn, problems


def run_concurrently(
    roles: Mapping[str, Role], open_table: Callable[[], Table], seconds: float
) -> dict[str, int]:
    """Run each role in a process; return the number of turns by role; fail if there are problems.

    Each process opens the table after the fork, because clients of stores do not survive a fork.
    """
    context = multiprocessing.get_context("fork")
    ready, reported = context.Barrier(len(roles)), context.Queue()
    processes = [
        context.Process(target=_run_role, args=(name, role, open_table, seconds, ready, reported))
        for name, role in roles.items()
    ]
    with warnings.catch_warnings():
        # fork() warns because the process has idle threads.
        warnings.simplefilter("ignore", DeprecationWarning)
        for process in processes:
            process.start()
    reports = [reported.get(timeout=90) for _ in processes]
    for process in processes:
        process.join(60)
    found = [problem for _, _, problems in reports for problem in problems]
    assert not found, "\n".join(found)
    return {name: turns for name, turns, _ in reports}


def _run_role(
    name: str,
    role: Role,
    open_table: Callable[[], Table],
    seconds: float,
    ready: Barrier,
    reported: Queue[Report],
) -> None:
    table = open_table()
    ready.wait()
    reported.put((name, *repeat_role(name, role, table, seconds)))


def assert_no_row_lost(table: Table, turns: dict[str, int]) -> None:
    """Check that the table has the last row of every writer for each of its keys."""
    assert all(turns.values()), f"a role had no turn: {turns}"
    rows: dict[int, int] = dict(rows_of(table))
    assert sorted(rows) == list(range(2 * KEYS))
    for number in range(2):
        values = {rows[KEYS * number + k] for k in range(KEYS)}
        assert values == {turns[f"write {number}"] - 1}
