"""Processes that write, compact, expire, clean, tag and read one table at once, for a bounded time.

No reader fails on a version that is kept, no row is lost, and the table is sound at the end.
"""

from __future__ import annotations

import multiprocessing
import time
import traceback
import warnings
from collections.abc import Callable
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
from steps.histories import loose_files, make_old
from tables import new_table, rows_of, table_of

from paimon_orch import Catalog
from paimon_orch.errors import MissingFileError, NotFoundError, TransientError
from paimon_orch.steps.check import check
from paimon_orch.steps.compact import compact
from paimon_orch.steps.executor import InProcessExecutor
from paimon_orch.steps.expire_snapshots import expire_snapshots
from paimon_orch.steps.remove_orphan_files import remove_orphan_files
from paimon_orch.table.table import Table

SECONDS = 5.0
KEYS = 10
Role = Callable[[Table, int], None]


def write(table: Table, turn: int) -> None:
    """Give every key of this writer the number of the turn; keys are apart by writer."""
    first = KEYS * (multiprocessing.current_process().name == "write-1")
    table.upsert(table_of("k v", [(first + k, turn) for k in range(KEYS)]))


def pack(table: Table, turn: int) -> None:
    compact(table, InProcessExecutor(), strategy="full" if turn % 3 == 0 else "minor")


def expire(table: Table, turn: int) -> None:
    expire_snapshots(table, retain_max=3, retain_min=2, older_than=0)


def clean(table: Table, turn: int) -> None:
    """Clean what is older than the table's schema by now: files that are being written are protected by age alone."""
    started = Path(table.schemas.path(0)).stat().st_mtime
    remove_orphan_files(table, older_than=int((started + 1000) * 1000))


def tag(table: Table, turn: int) -> None:
    name = f"t{turn % 3}"
    if name in table.tags.names():
        assert len(rows_of(table, tag=name)) in (KEYS, 2 * KEYS)
        table.tags.delete(name)
    table.tags.create(name)
    assert len(rows_of(table, tag=name)) in (KEYS, 2 * KEYS)


def read(table: Table, turn: int) -> None:
    """Read the newest snapshot: each writer's keys have one number, for a snapshot is seen wholly."""
    newest = table.snapshots.latest()
    assert newest is not None
    try:
        rows = rows_of(table, snapshot_id=newest.id)
    except (MissingFileError, NotFoundError, FileNotFoundError):
        kept = (table.snapshots.earliest_id() or 0) <= newest.id
        assert not kept, f"snapshot {newest.id} is kept and cannot be read"
        return
    for first in (0, KEYS):
        values = {v for k, v in rows if first <= k < first + KEYS}
        assert len(values) <= 1, f"snapshot {newest.id} is torn: {rows}"


def work(
    role: Role, warehouse: str, ready: Barrier, problems: Queue[str], done: Queue[str]
) -> None:
    """Do one thing again and again; losing a race is no problem, everything else is."""
    table, turn = Catalog(warehouse).table("db.t"), 0
    ready.wait()
    until = time.time() + SECONDS
    while time.time() < until:
        try:
            role(table, turn)
            turn += 1
        except (TransientError, NotFoundError, MissingFileError) as error:
            if role in (write, read):
                problems.put(f"{role.__name__}: {error}")
        except BaseException:  # noqa: BLE001 - told to the test
            problems.put(f"{role.__name__}: {traceback.format_exc()}")
            break
    done.put(f"{multiprocessing.current_process().name} {turn}")


@pytest.mark.slow
@pytest.mark.parametrize("vectors", ["false", "true"])
def test_all_at_once(tmp_path: Path, vectors: str) -> None:
    options = {"deletion_vectors__enabled": vectors, "deletion_vectors__merge_on_read": vectors}
    table = new_table(tmp_path, "k INT, v INT", commit__max_retries="1000", **options)
    for number in range(2):
        for _ in range(4):
            table.upsert(table_of("k v", [(KEYS * number + k, -1) for k in range(KEYS)]))
    (Path(table.paths.root) / "bucket-0" / "data-orphan.parquet").write_bytes(b"orphan")
    make_old(table)  # by a week
    context = multiprocessing.get_context("fork")
    roles = [write, write, pack, expire, clean, tag, read]
    ready = context.Barrier(len(roles))
    problems: Queue[str] = context.Queue()
    done: Queue[str] = context.Queue()
    names = [f"{role.__name__}-{number}" for number, role in enumerate(roles)]
    processes = [
        context.Process(target=work, name=name, args=(role, str(tmp_path), ready, problems, done))
        for name, role in zip(names, roles, strict=True)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # of forking beside Arrow's idle threads
        for process in processes:
            process.start()
    turns = dict(done.get(timeout=90).split() for _ in processes)
    for process in processes:
        process.join(60)
    found = [problems.get() for _ in range(problems.qsize())]

    assert found == []
    assert not (Path(table.paths.root) / "bucket-0" / "data-orphan.parquet").exists()
    assert all(int(count) > 0 for count in turns.values()), turns
    rows: dict[int, int] = dict(rows_of(table))
    assert sorted(rows) == list(range(2 * KEYS)), "no row is lost"
    for number in range(2):
        expected = int(turns[f"write-{number}"]) - 1
        first = KEYS * number if number == 1 else 0
        assert {rows[k] for k in range(first, first + KEYS)} == {expected}
    assert check(table, deep=True).findings == ()
    make_old(table)
    remove_orphan_files(table)
    assert loose_files(table) == set()
    assert check(table, deep=True).findings == ()
