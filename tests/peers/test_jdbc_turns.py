"""Java Paimon and this library use one JDBC catalog in turns, and exclude each other by its locks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.catalogs.jdbc_databases import JdbcDatabase
from support.commit_race import start_race
from support.peers.environments import JAVA, peer_start
from support.peers.peers import Peer, PeerError
from support.peers.protocol import PeerProcess
from support.tables import rows_of

from paimon_orch import Catalog
from paimon_orch.errors import AlreadyExistsError, LockTimeoutError, NotFoundError
from paimon_orch.table.schema_change.schema_changes import AddColumn, SetOption

# Table properties are stored, and PostgreSQL has locks, since 1.4 and 1.1.
NEWER = [name for name in JAVA if name != "java-0.9"]
SPEC: dict[str, Any] = {
    "fields": [
        {"id": 0, "name": "k", "type": "INT NOT NULL"},
        {"id": 1, "name": "v", "type": "STRING"},
    ],
    "partition_keys": [],
    "primary_keys": ["k"],
    "options": {"bucket": "1"},
}
IMPATIENT = {"lock_acquire_timeout": "2 s", "lock_check_max_sleep": "100 ms"}


def upsert_five(process: int, options: dict[str, Any]) -> None:
    table = Catalog(**options).table("db.t")
    for key in range(10 * process, 10 * process + 5):
        table.upsert(pa.table({"k": pa.array([key], pa.int32()), "v": ["ours"]}))


@pytest.fixture(autouse=True)
def _time_zone_of_the_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    """All committers in one PostgreSQL database need one time zone; Java peers run in UTC."""
    monkeypatch.setenv("TZ", "UTC")


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    return tmp_path / "warehouse"


def create(catalog: Catalog, name: str = "db.t") -> None:
    columns = "k INT NOT NULL, v STRING"
    catalog.create_table(name, columns, primary_key=["k"], options={"bucket": "1"})


def upsert(catalog: Catalog, key: int, text: str, name: str = "db.t") -> None:
    catalog.table(name).upsert(pa.table({"k": pa.array([key], pa.int32()), "v": [text]}))


@pytest.mark.parametrize("jdbc_peer", JAVA, indirect=True)
def test_we_read_and_change_tables_of_java(
    warehouse: Path, jdbc_database: JdbcDatabase, jdbc_peer: Peer
) -> None:
    options, ours = jdbc_database.options(warehouse), jdbc_database.open(warehouse)
    jdbc_peer.run("create", options, spec=SPEC)
    jdbc_peer.run("write", options, rows=[{"k": 1, "v": "java"}])

    assert (ours.databases(), ours.tables("db")) == (["db"], ["t"])
    assert rows_of(ours.table("db.t")) == [(1, "java")]
    with pytest.raises(AlreadyExistsError):
        create(ours)

    upsert(ours, 2, "ours")
    ours.alter_table("db.t", [AddColumn(column="w", type="INT")])
    assert jdbc_peer.read(options) == [
        {"k": 1, "v": "java", "w": None},
        {"k": 2, "v": "ours", "w": None},
    ]

    jdbc_peer.run("alter", options, changes=[["rename", "w", "x"], ["set", "num-levels", "7"]])
    jdbc_peer.run("write", options, rows=[{"k": 3, "v": "java", "x": 3}])
    table = ours.table("db.t")
    assert table.load().schema.names == ["k", "v", "x"]
    assert table.load().schema.options["num-levels"] == "7"
    assert rows_of(table) == [(1, "java", None), (2, "ours", None), (3, "java", 3)]

    jdbc_peer.run("rename", options, to="db.u")
    assert ours.tables("db") == ["u"]
    assert len(rows_of(ours.table("db.u"))) == 3

    ours.rename_table("db.u", "db.v")
    assert len(jdbc_peer.read(options, "db.v")) == 3
    jdbc_peer.run("drop", options, "db.v")
    assert ours.tables("db") == []
    ours.drop_database("db")
    assert jdbc_peer.ask("list_databases", options) == []


@pytest.mark.parametrize("jdbc_peer", JAVA, indirect=True)
def test_java_reads_and_changes_our_tables(
    warehouse: Path, jdbc_database: JdbcDatabase, jdbc_peer: Peer
) -> None:
    options, ours = jdbc_database.options(warehouse), jdbc_database.open(warehouse)
    create(ours)
    upsert(ours, 1, "ours")

    # Java 0.9 lists a database with tables twice.
    assert set(jdbc_peer.ask("list_databases", options)) == {"db"}
    assert jdbc_peer.ask("list_tables", options, database="db") == ["t"]
    assert jdbc_peer.read(options) == [{"k": 1, "v": "ours"}]
    assert jdbc_peer.ask("get_table", options, table="db.t")["location"] == f"{warehouse}/db.db/t"
    with pytest.raises(PeerError, match="exist"):
        jdbc_peer.run("create", options, spec=SPEC)

    jdbc_peer.run("write", options, rows=[{"k": 2, "v": "java"}])
    upsert(ours, 3, "ours")
    jdbc_peer.run("write", options, rows=[{"k": 3, "v": "java"}])
    assert rows_of(ours.table("db.t")) == [(1, "ours"), (2, "java"), (3, "java")]

    ours.alter_table("db.t", [SetOption("num-levels", "7")])
    jdbc_peer.run("alter", options, changes=[["add", "w", "INT"]])
    assert ours.table("db.t").load().schema.names == ["k", "v", "w"]

    ours.drop_table("db.t")
    assert jdbc_peer.ask("list_tables", options, database="db") == []
    with pytest.raises(PeerError):
        jdbc_peer.read(options)
    jdbc_peer.run("create", options, spec=SPEC)
    assert rows_of(ours.table("db.t")) == []
    jdbc_peer.ask("drop_database", options, database="db", cascade=True)
    with pytest.raises(NotFoundError):
        ours.table("db.t")


@pytest.mark.parametrize("jdbc_peer", NEWER, indirect=True)
def test_our_rows_equal_those_of_java(
    tmp_path: Path, warehouse: Path, jdbc_database: JdbcDatabase, jdbc_peer: Peer
) -> None:
    """The same changes through both, in two catalogs of one database."""
    ours = jdbc_database.open(warehouse, catalog_key="ours", lock__enabled="true")
    java = jdbc_database.options(tmp_path / "java", catalog_key="java", lock__enabled="true")
    options = {"bucket": "2", "num-levels": "7"}
    spec = {
        **SPEC,
        "fields": [{"id": 0, "name": "day", "type": "STRING NOT NULL"}, *SPEC["fields"]],
        "partition_keys": ["day"],
        "primary_keys": ["day", "k"],
        "options": options,
    }
    # Java's columns keep their ids, which begin at the partition column.
    spec["fields"] = [{**field, "id": i} for i, field in enumerate(spec["fields"])]

    def compare() -> None:
        for name, rows in jdbc_database.tables().items():
            texts = [tuple(map(str, row)) for row in rows]
            by_key = {
                key: sorted(
                    tuple(text.replace(str(root), "/warehouse") for text in row[1:])
                    for row in texts
                    if row[0] == key
                )
                for key, root in (("ours", warehouse), ("java", tmp_path / "java"))
            }
            assert by_key["ours"] == by_key["java"], name

    jdbc_peer.run("create", java, spec=spec)
    columns = "day STRING NOT NULL, k INT NOT NULL, v STRING"
    ours.create_table(
        "db.t", columns, primary_key=["day", "k"], partition_by=["day"], options=options
    )
    compare()
    jdbc_peer.run("alter", java, changes=[["set", "num-levels", "8"], ["add", "w", "INT"]])
    ours.alter_table("db.t", [SetOption("num-levels", "8"), AddColumn(column="w", type="INT")])
    compare()
    jdbc_peer.run("rename", java, to="db.u")
    ours.rename_table("db.t", "db.u")
    compare()
    jdbc_peer.run("drop", java, "db.u")
    ours.drop_table("db.u")
    compare()
    jdbc_peer.ask("drop_database", java, database="db", cascade=False)
    ours.drop_database("db")
    assert not any(jdbc_database.tables().values())


@contextmanager
def held_by_java(peer: Peer, catalog: dict[str, str], file: Path) -> Iterator[Future[None]]:
    """Hold the lock of the table in a peer, which answers no other command meanwhile."""
    with ThreadPoolExecutor(1) as pool:
        holding = pool.submit(peer.run, "hold_lock", catalog, path=str(file))
        try:
            while not file.exists():
                assert not holding.done(), holding.result()
                time.sleep(0.02)
            yield holding
        finally:
            file.unlink(missing_ok=True)


@pytest.mark.parametrize("jdbc_peer", NEWER, indirect=True)
def test_we_wait_while_java_holds_the_lock(
    tmp_path: Path, warehouse: Path, jdbc_database: JdbcDatabase, jdbc_peer: Peer
) -> None:
    options = jdbc_database.options(warehouse, lock__enabled="true", lock_acquire_timeout="60 s")
    impatient = jdbc_database.open(warehouse, lock__enabled="true", **IMPATIENT)
    patient = jdbc_database.open(warehouse, lock__enabled="true", lock_check_max_sleep="100 ms")
    create(patient)

    file = tmp_path / "held"
    with held_by_java(jdbc_peer, options, file) as holding:
        with pytest.raises(LockTimeoutError):
            upsert(impatient, 1, "impatient")
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(upsert, patient, 1, "patient")
            time.sleep(1)
            assert not waiting.done()
            file.unlink()
            waiting.result()
    holding.result()

    assert rows_of(patient.table("db.t")) == [(1, "patient")]
    assert jdbc_database.rows("paimon_distributed_locks") == []


@pytest.mark.parametrize("jdbc_peer", NEWER, indirect=True)
def test_java_waits_while_we_hold_the_lock(
    warehouse: Path, jdbc_database: JdbcDatabase, jdbc_peer: Peer
) -> None:
    impatient = jdbc_database.options(warehouse, lock__enabled="true", **IMPATIENT)
    ours = jdbc_database.open(warehouse, lock__enabled="true", lock_acquire_timeout="60 s")
    create(ours)
    ours.alter_table("db.t", [SetOption("commit.max-retries", "1")])  # Java repeats the wait
    row = {"k": 1, "v": "java"}

    failure = pytest.raises(PeerError, match="Acquire lock failed with time")
    with ours.table("db.t").environment.hold_lock(), failure:
        jdbc_peer.run("write", impatient, rows=[row])
    jdbc_peer.run("write", impatient, rows=[row])

    assert rows_of(ours.table("db.t")) == [(1, "java")]
    assert jdbc_database.rows("paimon_distributed_locks") == []


@pytest.mark.parametrize("jdbc_peer", ["java-1.4"], indirect=True)
def test_an_expired_lock_of_ours_is_removed_by_java_and_theirs_by_us(
    warehouse: Path, jdbc_database: JdbcDatabase, jdbc_peer: Peer
) -> None:
    """Both must compute the same age, also if this process is far from UTC."""
    options = jdbc_database.options(warehouse, lock__enabled="true", lock_check_max_sleep="100 ms")
    short = jdbc_database.open(warehouse, lock__enabled="true", lock_acquire_timeout="2 s")
    create(short)

    with short.table("db.t").environment.hold_lock():
        jdbc_peer.run("write", options, rows=[{"k": 1, "v": "java"}])

    assert rows_of(short.table("db.t")) == [(1, "java")]
    assert jdbc_database.rows("paimon_distributed_locks") == []


@pytest.mark.slow
@pytest.mark.parametrize("jdbc_peer", ["java-1.4"], indirect=True)
def test_java_and_our_processes_commit_at_once(
    warehouse: Path, jdbc_database: JdbcDatabase, jdbc_peer: Peer
) -> None:
    options = jdbc_database.options(warehouse, lock__enabled="true", lock_check_max_sleep="200 ms")
    jdbc_peer.run(
        "create", options, spec={**SPEC, "options": {"bucket": "1", "write-only": "true"}}
    )
    race = start_race(3, upsert_five, options)
    for key in range(100, 110):
        jdbc_peer.run("write", options, rows=[{"k": key, "v": "java"}])

    race.join()
    assert race.exitcode == 0
    expected = [(10 * number + i, "ours") for number in range(3) for i in range(5)]
    expected += [(key, "java") for key in range(100, 110)]
    assert rows_of(jdbc_database.open(warehouse).table("db.t")) == expected
    assert jdbc_database.rows("paimon_distributed_locks") == []


@pytest.mark.parametrize("jdbc_peer", ["java-1.4"], indirect=True)
@pytest.mark.parametrize("time_zone", ["UTC", "Asia/Tokyo"])
def test_we_take_the_lock_of_a_killed_java_when_it_expires(
    tmp_path: Path,
    warehouse: Path,
    jdbc_database: JdbcDatabase,
    jdbc_peer: Peer,
    time_zone: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PostgreSQL stores local times of the sessions, so both must have the same zone."""
    monkeypatch.setenv("TZ", time_zone)
    killed, start = Peer(jdbc_peer.name), peer_start(jdbc_peer.name)
    killed.close()  # the process in UTC
    java_options = {"_JAVA_OPTIONS": f"-Duser.timezone={time_zone}"}
    killed._talk = PeerProcess(start.command, {**start.environment, **java_options})
    ours = jdbc_database.open(warehouse, lock__enabled="true", lock_check_max_sleep="200 ms")
    create(ours)
    options = jdbc_database.options(warehouse, lock__enabled="true", lock_acquire_timeout="3 s")

    try:
        assert killed.ask("list_tables", options, database="db") == ["t"]  # starts Java
        started = time.monotonic()
        with held_by_java(killed, options, tmp_path / "held") as died:
            killed.kill()
            with pytest.raises(PeerError, match="exited"):
                died.result()
    finally:
        killed.close()
    [(lock_id, _, seconds)] = jdbc_database.rows("paimon_distributed_locks")
    assert (lock_id, seconds) == ("jdbc.db.t", 3), "it outlives the process"

    upsert(ours, 1, "ours")

    assert time.monotonic() - started > 2, "not before its own time, of 3 whole seconds"
    assert rows_of(ours.table("db.t")) == [(1, "ours")]
    assert jdbc_database.rows("paimon_distributed_locks") == []
