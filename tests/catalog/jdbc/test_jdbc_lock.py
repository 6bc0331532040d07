"""Locks of a JDBC catalog: waits, expiry after a kill, and concurrent commits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy.dialects import mysql, postgresql, sqlite
from support.catalogs.jdbc_databases import JdbcDatabase
from support.clocks import replace_waits
from support.commit_race import start_race
from support.tables import rows_of

from paimon_orch import Catalog
from paimon_orch.catalog.jdbc.jdbc_lock import JdbcLock, compute_age
from paimon_orch.errors import InputError, LockTimeoutError, PaimonError
from paimon_orch.table.schema_change.schema_changes import AddColumn
from paimon_orch.table.table import Table

LOCKS = "paimon_distributed_locks"
IMPATIENT = {"lock_acquire_timeout": "2 s", "lock_check_max_sleep": "200 ms"}

PROGRAM = """
import sys, time
from paimon_orch import Catalog
options = dict(text.split("=", 1) for text in sys.argv[1:])
table = Catalog(**options).table("db.t")
started = time.monotonic()
with table.environment.lock.hold():
    print(started, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    return tmp_path / "warehouse"


def open_locked(database: JdbcDatabase, warehouse: Path, **more: str) -> Catalog:
    return database.open(warehouse, lock__enabled="true", **more)


def create(catalog: Catalog) -> Table:
    options = {"bucket": "1", "commit.max-retries": "100"}
    return catalog.create_table(
        "db.t", "k INT NOT NULL, v STRING", primary_key=["k"], options=options
    )


def rows(key: int) -> pa.Table:
    return pa.table({"k": pa.array([key], pa.int32()), "v": [str(key)]})


def get_lock(table: Table) -> JdbcLock:
    assert isinstance(table.environment.lock, JdbcLock)
    return table.environment.lock


def insert_lock(database: JdbcDatabase, seconds: int, lock_id: str = "jdbc.db.t") -> None:
    database.run(
        f"INSERT INTO {LOCKS} (lock_id, expire_time_seconds) VALUES (:id, :seconds)",  # noqa: S608
        id=lock_id,
        seconds=seconds,
    )


def upsert_five(process: int, options: dict[str, Any]) -> None:
    table = Catalog(**options).table("db.t")
    for key in range(5 * process, 5 * process + 5):
        table.upsert(rows(key))


def hold_in_a_killed_process(database: JdbcDatabase, warehouse: Path, **more: str) -> float:
    """Kill a process that holds the lock; return a time before it had it, by the clock of all."""
    options = database.options(warehouse, lock__enabled="true", **more)
    words = [f"{key}={text}" for key, text in options.items()]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words], stdin=pipe, stdout=pipe, text=True
    ) as process:
        assert process.stdout is not None
        started = float(process.stdout.readline())
        os.kill(process.pid, signal.SIGKILL)
    return started


def test_the_lock_is_a_row_while_it_is_held(jdbc_database: JdbcDatabase, warehouse: Path) -> None:
    table = create(open_locked(jdbc_database, warehouse, lock_acquire_timeout="90 s"))
    assert jdbc_database.rows(LOCKS) == [], "released after the creation"

    with get_lock(table).hold():
        [(lock_id, _, seconds)] = jdbc_database.rows(LOCKS)
        assert (lock_id, seconds) == ("jdbc.db.t", 90)

    assert jdbc_database.rows(LOCKS) == []


def test_the_lock_is_released_after_an_error(jdbc_database: JdbcDatabase, warehouse: Path) -> None:
    table = create(open_locked(jdbc_database, warehouse))
    with pytest.raises(RuntimeError), get_lock(table).hold():
        raise RuntimeError
    assert jdbc_database.rows(LOCKS) == []


@pytest.mark.slow
def test_commits_schema_changes_and_renames_wait_for_the_lock(
    jdbc_database: JdbcDatabase, warehouse: Path
) -> None:
    catalog = open_locked(jdbc_database, warehouse, **IMPATIENT)
    table = create(catalog)
    table.upsert(rows(1))
    insert_lock(jdbc_database, 60)

    with pytest.raises(LockTimeoutError, match=r"'jdbc\.db\.t' was held by other .* for 2 s"):
        table.upsert(rows(2))
    with pytest.raises(LockTimeoutError):
        catalog.alter_table("db.t", [AddColumn(column="w", type="INT")])
    with pytest.raises(LockTimeoutError):
        catalog.rename_table("db.t", "db.u")

    assert rows_of(catalog.table("db.t")) == [(1, "1")]
    assert catalog.table("db.t").load().schema.names == ["k", "v"]
    snapshot = table.snapshot()
    assert snapshot is not None
    assert snapshot.id == 1
    manifests = [path.name for path in (warehouse / "db.db/t/manifest").iterdir()]
    assert len(manifests) == 3, "those of the refused commit are deleted"
    assert len(jdbc_database.rows(LOCKS)) == 1, "the lock of others is kept"


@pytest.mark.slow
def test_a_branch_has_its_own_lock(jdbc_database: JdbcDatabase, warehouse: Path) -> None:
    catalog = open_locked(jdbc_database, warehouse, **IMPATIENT)
    table = create(catalog)
    table.upsert(rows(1))
    table.branches.create("b")
    branch = catalog.table("db.t$branch_b")

    insert_lock(jdbc_database, 60)
    branch.upsert(rows(2))
    insert_lock(jdbc_database, 60, "jdbc.db.t$branch_b")
    with pytest.raises(LockTimeoutError, match=r"db\.t\$branch_b"):
        branch.upsert(rows(3))


@pytest.mark.slow
def test_a_waiting_commit_continues_after_the_release(
    jdbc_database: JdbcDatabase, warehouse: Path
) -> None:
    table = create(open_locked(jdbc_database, warehouse, lock_check_max_sleep="200 ms"))
    insert_lock(jdbc_database, 600)
    steps = list[str]()

    def release() -> None:
        steps.append("released")
        jdbc_database.run(f"DELETE FROM {LOCKS}")  # noqa: S608

    timer = threading.Timer(1.0, release)
    timer.start()

    table.upsert(rows(1))

    steps.append("committed")
    timer.join()
    assert steps == ["released", "committed"]
    assert rows_of(table) == [(1, "1")]


@pytest.mark.slow
def test_the_lock_of_a_killed_process_is_removed_when_it_expires(
    jdbc_database: JdbcDatabase, warehouse: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = create(open_locked(jdbc_database, warehouse, lock_check_max_sleep="200 ms"))
    started = hold_in_a_killed_process(jdbc_database, warehouse, lock_acquire_timeout="3 s")
    [(lock_id, _, seconds)] = jdbc_database.rows(LOCKS)
    assert (lock_id, seconds) == ("jdbc.db.t", 3), "it outlives the process"

    table.upsert(rows(1))

    assert time.monotonic() - started > 2, "not before its own time, of 3 whole seconds"
    assert "removed the expired lock 'jdbc.db.t'" in caplog.text
    assert rows_of(table) == [(1, "1")]
    assert jdbc_database.rows(LOCKS) == []


@pytest.mark.slow
def test_a_lock_that_expired_while_it_was_held_is_not_taken_from_the_next_holder(
    jdbc_database: JdbcDatabase, warehouse: Path, caplog: pytest.LogCaptureFixture
) -> None:
    slow = create(open_locked(jdbc_database, warehouse, lock_acquire_timeout="1 s"))
    other = open_locked(jdbc_database, warehouse, lock_check_max_sleep="100 ms").table("db.t")

    with get_lock(slow).hold():
        with get_lock(other).hold():
            pass
        insert_lock(jdbc_database, 600)
        caplog.clear()

    assert "was removed while it was held, because it expired after 1 s" in caplog.text
    [(_, _, seconds)] = jdbc_database.rows(LOCKS)
    assert seconds == 600


def test_a_failed_release_is_a_warning(
    jdbc_database: JdbcDatabase, warehouse: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = create(open_locked(jdbc_database, warehouse))

    with get_lock(table).hold():
        jdbc_database.run(f"DROP TABLE {LOCKS}")

    assert "is not released until it expires" in caplog.text


def test_an_error_of_the_database_is_not_a_held_lock(
    jdbc_database: JdbcDatabase, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(open_locked(jdbc_database, warehouse))
    jdbc_database.run(f"ALTER TABLE {LOCKS} RENAME COLUMN expire_time_seconds TO seconds")
    replace_waits(monkeypatch, lambda _: pytest.fail("waits"))

    with pytest.raises(PaimonError, match="expire_time_seconds"), get_lock(table).hold():
        pass


def test_a_lock_id_longer_than_the_column_is_refused_at_once(
    jdbc_database: JdbcDatabase, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if jdbc_database.kind == "sqlite":
        pytest.skip("SQLite ignores the lengths of columns")
    replace_waits(monkeypatch, lambda _: pytest.fail("waits"))

    with pytest.raises(InputError, match="too long"):
        create(open_locked(jdbc_database, warehouse, lock_key_max_length="5"))


@pytest.mark.slow
def test_eight_processes_commit_at_once(jdbc_database: JdbcDatabase, warehouse: Path) -> None:
    table = create(open_locked(jdbc_database, warehouse))

    options = {"lock__enabled": "true", "lock_check_max_sleep": "200 ms"}
    race = start_race(8, upsert_five, jdbc_database.options(warehouse, **options))
    race.join()

    assert race.exitcode == 0
    assert rows_of(table) == [(key, str(key)) for key in range(40)]
    assert jdbc_database.rows(LOCKS) == []


def test_sessions_of_other_time_zones_agree_on_the_age_in_postgresql(
    jdbc_database: JdbcDatabase, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server stores local times, so the session must have the zone of the process."""
    if jdbc_database.kind == "sqlite":
        pytest.skip("SQLite has times in UTC")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    table = create(open_locked(jdbc_database, warehouse, **IMPATIENT))

    with get_lock(table).hold():
        [(local, utc)] = jdbc_database.run(
            f"SELECT acquired_at, NOW() AT TIME ZONE 'UTC' FROM {LOCKS}"  # noqa: S608
        )
        assert round((local - utc).total_seconds() / 3600) == 9


@pytest.mark.parametrize(
    ("dialect", "age"),
    [
        (
            sqlite,
            "strftime('%s', 'now') - strftime('%s', paimon_distributed_locks.acquired_at)",
        ),
        (
            postgresql,
            "EXTRACT(epoch FROM age(now(), paimon_distributed_locks.acquired_at))",
        ),
        (mysql, "timestampdiff(SECOND, paimon_distributed_locks.acquired_at, now())"),
    ],
)
def test_each_database_computes_the_age_as_for_java(dialect: Any, age: str) -> None:
    dialect = dialect.dialect()
    expression = compute_age(dialect.name)
    compiled = expression.compile(dialect=dialect, compile_kwargs={"literal_binds": True})
    assert str(compiled).replace("%%", "%") == age
